"""A whole answer, made from the events of a call."""

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
    """All tokens of the choice; None when none were received."""
    fields: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The other keys of the chat message (``tool_calls``, ``reasoning_content`` …), merged."""
    extras: Mapping[str, Any] = field(default=EMPTY_MAPPING)
    """The other keys of the choice, unchanged."""


@dataclass(frozen=True, slots=True)
class Completion:
    """All choices in order of their indexes, and the token counts."""

    choices: tuple[Choice, ...]
    usage: Usage | None = None
    begun: Begun | None = None
