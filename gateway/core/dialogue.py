"""What was said: the conversation of a request, before any template has seen it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, overload

from gateway.core.frozen import dataclass


class _Nothing(dict[str, Any]):
    """An empty mapping that is hashable, so that a frozen dataclass takes it as a default, and that stays empty."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return 0

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("this mapping is shared, and stays empty")

    __setitem__ = setdefault = update = __ior__ = _refuse


EMPTY_MAPPING: Mapping[str, Any] = _Nothing()
"""The empty mapping, shared, because frozen values cannot default to ``{}``."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message's content, as the client sent it."""

    kind: str
    """``text``, ``image_url``, ``input_audio``, …: the part's ``type`` on the wire."""
    text: str = ""
    """The text of a ``text`` part; empty for media."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: who speaks, and what.

    ``raw`` is the message as it came over the wire, for targets that take
    messages untouched; string templates read ``text`` and ``parts`` only.
    """

    role: str
    text: str
    """The content as one string: text parts joined with nothing between, ``""`` for null."""
    parts: tuple[Part, ...] = ()
    """Set when the content came as a list; empty when it was a string or null."""
    raw: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Two keys and a text: the message holds nothing else. Without a text the second key may be another one."""


class PlainMessages(Sequence[Message]):
    """Messages of a role and a text and nothing else, in columns: nearly every conversation is of such.

    A renderer in a hurry takes the columns, which are its own to read and nobody's to change. Whoever asks for a
    message gets a ``Message``; all are made when somebody looks at the first.
    """

    __slots__ = ("_made", "raws", "roles", "texts")

    def __init__(self, roles: tuple[str, ...], texts: list[str], raws: list[Mapping[str, Any]]) -> None:
        self.roles = roles
        self.texts = texts
        self.raws = raws
        """As they came over the wire."""
        self._made: tuple[Message, ...] | None = None

    @property
    def made(self) -> tuple[Message, ...]:
        """The messages, each a ``Message``."""
        if self._made is None:
            said = zip(self.roles, self.texts, self.raws, strict=True)
            self._made = tuple([Message(role, text, (), raw) for role, text, raw in said])
        return self._made

    def __len__(self) -> int:
        return len(self.roles)

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, place: int | slice) -> Message | tuple[Message, ...]:
        return self.made[place]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.made)

    def __eq__(self, other: object) -> bool:
        return self.made == (other.made if isinstance(other, PlainMessages) else other)

    def __hash__(self) -> int:
        return hash(self.made)

    def __repr__(self) -> str:
        return repr(self.made)


ROLES = {role: role for role in ("system", "user", "assistant", "developer")}
"""The usual roles, each one object: whoever compares columns of them need not look at letters."""


def plain_messages(raws: list[Any]) -> PlainMessages | None:
    """The messages, if each is an object of a usual role and a text and nothing else; None: not all are."""
    roles, texts = [], []
    try:
        for raw in raws:
            text = raw["content"]
            if type(text) is not str or len(raw) != 2:
                return None
            texts.append(text)
            roles.append(ROLES[raw["role"]])
    except (KeyError, TypeError):  # a key is missing, that is no object at all, or the role is another one
        return None
    return PlainMessages(tuple(roles), texts, raws)


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """What a request asks of its prompt beside the messages."""

    continue_final: bool = False
    """True: the last message is an unfinished assistant turn to be continued."""
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    """As the client sent it; ``template/tools.py`` reads it for templates that write tools."""
    parallel_calls: bool = True
    """False: the answer may hold one call at most."""
    variables: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Values for the slots of a template that has some (``gateway: {variables: …}``); others refuse them."""
    template_kwargs: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """``chat_template_kwargs`` of the request: variables for a chat template that takes them; others refuse."""


NO_WISHES = RenderOptions()
"""Of most requests, and shared by them: whoever is in a hurry asks whether it is this one."""


def wishes_of(**asked: Any) -> RenderOptions:
    """The wishes with these fields, as a request has them: those of most requests where nothing is asked."""
    wishes = RenderOptions(**asked)
    return NO_WISHES if wishes == NO_WISHES else wishes


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The conversation to render, and how it is meant."""

    messages: Sequence[Message]
    """A tuple, or the columns of plain ones."""
    wishes: RenderOptions = NO_WISHES

    @property
    def texts(self) -> Sequence[str]:
        """What is said, message by message."""
        said = self.messages
        return said.texts if type(said) is PlainMessages else [message.text for message in said]

    @property
    def continue_final(self) -> bool:
        """See ``RenderOptions``."""
        return self.wishes.continue_final

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """See ``RenderOptions``."""
        return self.wishes.tools

    @property
    def tool_choice(self) -> str | Mapping[str, Any] | None:
        """See ``RenderOptions``."""
        return self.wishes.tool_choice

    @property
    def parallel_calls(self) -> bool:
        """See ``RenderOptions``."""
        return self.wishes.parallel_calls

    @property
    def variables(self) -> Mapping[str, Any]:
        """See ``RenderOptions``."""
        return self.wishes.variables

    @property
    def template_kwargs(self) -> Mapping[str, Any]:
        """See ``RenderOptions``."""
        return self.wishes.template_kwargs
