"""What was said: the conversation of a request, before any template has seen it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from gateway.core.frozen import dataclass


class _Nothing(Mapping[str, Any]):
    """An empty mapping that is hashable, so that a frozen dataclass takes it as a default."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"


NOTHING: Mapping[str, Any] = _Nothing()
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
    raw: Mapping[str, Any] = field(default=NOTHING)
    """Two keys and a text: the message holds nothing else. Without a text the second key may be another one."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The conversation to render, and how its end is meant."""

    messages: tuple[Message, ...]
    continue_final: bool = False
    """True: the last message is an unfinished assistant turn to be continued."""
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    """As the client sent it; ``template/tools.py`` reads it for templates that write tools."""
    parallel_calls: bool = True
    """False: the answer may hold one call at most."""
    variables: Mapping[str, Any] = field(default=NOTHING)
    """Values for the slots of a template that has some (``gateway: {variables: …}``); others refuse them."""
    template_kwargs: Mapping[str, Any] = field(default=NOTHING)
    """``chat_template_kwargs`` of the request: variables for a chat template that takes them; others refuse."""
