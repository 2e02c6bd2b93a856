"""A whole answer: what a stream of events comes to once it is folded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.events import Begun, Finish, TokenLogprob, Usage
from gateway.core.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished choice."""

    index: int
    text: str
    finish: Finish
    logprobs: tuple[TokenLogprob, ...] | None = None
    """All tokens of the choice; None when none were asked for or given."""
    fields: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The other keys of the chat message (``tool_calls``, ``reasoning_content`` …), merged."""
    extras: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The other keys of the choice, word for word."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Every choice in order of its index, and what was counted."""

    choices: tuple[Choice, ...]
    usage: Usage | None = None
    begun: Begun | None = None
