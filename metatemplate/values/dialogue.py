"""The conversation of a request, before a template renders it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, overload

from metatemplate.values import fast_paths
from metatemplate.values.frozen import EMPTY_MAPPING as EMPTY_MAPPING
from metatemplate.values.frozen import dataclass

DATASET_PARAM = "gateway.prompt"
"""The field of a request that names a dataset prompt, for errors."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message's content, as the client sent it."""

    kind: str
    """The value of ``type`` in the request: ``text``, ``image_url``, ``input_audio`` …"""
    text: str = ""
    """The text of a ``text`` part; empty for media."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    text: str
    """The content as one string. Text parts are joined without a separator; null becomes ``""``."""
    parts: tuple[Part, ...] = ()
    """The parts of a content that is a list; empty if the content was a string or null."""
    raw: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The message as received, for targets that receive messages unchanged."""


class PlainMessages(Sequence[Message]):
    """Messages that have only a role and a text, stored in columns. Renderers may read the columns but not change them.

    The first access to a message creates all ``Message`` objects.
    """

    __slots__ = ("_made", "raws", "roles", "texts")

    def __init__(self, roles: tuple[str, ...], texts: list[str], raws: list[Mapping[str, Any]]) -> None:
        self.roles = roles
        self.texts = texts
        self.raws = raws
        """The messages as received."""
        self._made: tuple[Message, ...] | None = None

    @property
    def made(self) -> tuple[Message, ...]:
        """The messages as ``Message`` objects."""
        if self._made is None:
            rows = zip(self.roles, self.texts, self.raws, strict=True)
            self._made = tuple([Message(role, text, (), raw) for role, text, raw in rows])
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
        return self.made == (other.made if type(other) is PlainMessages else other)

    def __hash__(self) -> int:
        return hash(self.made)

    def __repr__(self) -> str:
        return repr(self.made)


ROLES = {role: role for role in ("system", "user", "assistant", "developer")}
"""The usual roles. Each role is one shared string object, so that comparing columns of roles is fast."""


def plain_messages(raws: list[Any]) -> PlainMessages | None:
    """Return the messages in columns if each message has only a usual role and a text; otherwise None.

    This is a fast path. With fast paths off, the result is always None.
    """
    if not fast_paths.ENABLED:
        return None
    roles, texts = [], []
    try:
        for raw in raws:
            text = raw["content"]
            if type(text) is not str or len(raw) != 2:
                return None
            texts.append(text)
            roles.append(ROLES[raw["role"]])
    except (KeyError, TypeError):  # a missing key, no object, or another role
        return None
    return PlainMessages(tuple(roles), texts, raws)


def read_message(raw: Mapping[str, Any]) -> Message:
    """Return a message in OpenAI's form, whose fields are not checked."""
    content = raw.get("content")
    if not isinstance(content, (list, tuple)):
        return Message(raw["role"], content or "", (), raw)
    parts = tuple([Part(part["type"], part.get("text") or "") for part in content])
    return Message(raw["role"], "".join([part.text for part in parts]), parts, raw)


def read_messages(raws: list[Any]) -> Sequence[Message]:
    """Return messages in OpenAI's form, whose fields are not checked. In columns, if ``plain_messages`` allows it."""
    return plain_messages(raws) or tuple(map(read_message, raws))


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """Options of a request that affect its prompt."""

    continue_final: bool = False
    """True: the last message is an unfinished assistant turn, which the model continues."""
    whole: bool = False
    """True: the conversation is complete. Every turn ends, and no answer is opened (``add_generation_prompt: false``).
    Never set together with ``continue_final``."""
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    """The value as the client sent it; ``metatemplate/templates/tools.py`` parses the value."""
    json_call: bool = False
    """True: the model must write a whole tool call as JSON, so the prompt ends before this JSON."""
    parallel_calls: bool = True
    """False: the answer may have one tool call at most."""
    variables: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Values for a template's slots (``gateway: {variables: …}``). A template without slots refuses values."""
    template_kwargs: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The request's ``chat_template_kwargs``. A template without variables refuses these values."""


MAX_TURNS = 64
"""The maximum number of turns that the model answers in one call."""
SYSTEM_ROLES = ("system", "developer")
"""OpenAI's roles of messages from the operator."""
COMPARED_KEYS = frozenset({"role", "type"})
"""Chat templates compare the values of these keys with constants."""
PLAIN_VALUE = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Matches short values such as ids, and values of ``chat_template_kwargs`` that templates compare with constants."""
DEFAULT_OPTIONS = RenderOptions()
"""The default options, shared by most requests, so that renderers can compare by identity."""


def render_options(**asked: Any) -> RenderOptions:
    """Return options with the given fields. If all fields have default values, return ``DEFAULT_OPTIONS`` itself."""
    options = RenderOptions(**asked)
    return DEFAULT_OPTIONS if options == DEFAULT_OPTIONS else options


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The conversation to render, and its options."""

    messages: Sequence[Message]
    """The messages, as a tuple or as ``PlainMessages``."""
    options: RenderOptions = DEFAULT_OPTIONS

    @property
    def texts(self) -> Sequence[str]:
        """The text of each message."""
        messages = self.messages
        return messages.texts if type(messages) is PlainMessages else [message.text for message in messages]
