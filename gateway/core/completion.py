"""A whole answer, made from the events of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.events import Begun, Delta, Event, Finish, TokenLogprob, Usage
from gateway.core.frozen import dataclass

MAX_COMPLETION = 16 * 1024 * 1024
"""The maximum size of one answer with all choices, as counted by ``delta_size``. An answer that is not streamed may
have the same number of bytes."""
PIECE = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished choice."""

    index: int
    text: str
    finish: Finish
    logprobs: tuple[TokenLogprob, ...] | None = None
    """The log probabilities of all tokens of the choice; None if the target sent no log probabilities."""
    fields: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The keys of the chat message except role and content (``tool_calls``, …), merged from all deltas."""
    extras: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """Further keys of the choice from the target, unchanged."""


@dataclass(frozen=True, slots=True)
class Completion:
    """All choices in order of their indexes, and the token counts."""

    choices: tuple[Choice, ...]
    usage: Usage | None = None
    begun: Begun | None = None
    events: tuple[Event, ...] = ()
    """All events in order. Empty if the events were not kept, or if the answer has only one piece of text."""


def delta_size(delta: Delta) -> int:
    """Return the size of a delta: its characters, plus ``PIECE`` for the delta and for each value in the delta."""
    size = PIECE + len(delta.text)
    if delta.logprobs is not None or delta.fields is not EMPTY_MAPPING or delta.extras is not EMPTY_MAPPING:
        tokens = sum([1 + len(token.top or ()) for token in delta.logprobs or ()])
        size += PIECE * tokens + _value_size(delta.fields) + _value_size(delta.extras)
    return size


def _value_size(value: object) -> int:
    if isinstance(value, str):
        return PIECE + len(value)
    if isinstance(value, Mapping):
        return PIECE + sum(map(_value_size, value.values()))
    return PIECE + sum(map(_value_size, value)) if isinstance(value, list) else PIECE
