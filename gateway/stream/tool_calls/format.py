"""The description of a tool-call format, and the pieces into which it divides a text."""

from __future__ import annotations

from collections.abc import Callable

from gateway.core.frozen import dataclass
from gateway.stream.stop_search import StopSet
from gateway.stream.tool_calls.region import Rule


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """One complete call."""

    name: str
    arguments: str
    """The text of a JSON object; where the format holds JSON, the model's own characters."""


@dataclass(frozen=True, slots=True)
class UnparsedCall:
    """Text that began like a call and is not one. It stays text, and is counted."""

    text: str


Piece = str | ParsedCall | UnparsedCall
"""More of the content (never empty), a call, or a failed call."""
Calls = tuple[ParsedCall, ...]

MAX_CALLS = 256
"""Calls in one answer; further ones stay text."""

_NO_MARKERS = StopSet(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The form in which one family of models writes its calls."""

    rule: Rule
    """Follows a region to its end."""
    read: Callable[[str], Calls | None]
    """The calls of a whole region; None if it holds none, or anything beside them. Never raises."""
    markers: StopSet = _NO_MARKERS
    """Texts that open a region anywhere."""
    openers: str = ""
    """Characters that open a region where only calls and white space came before."""
    separator: str = ""
    """Text that may stand once between two such regions."""
    closing: str = ""
    """Ends a region, and may be the stop that ended the answer: then the text does not hold it."""
    markers_begin_lines: bool = False
    """The markers begin with a line break, and the beginning of the answer counts as one."""
    can_name: Callable[[str], bool] = lambda name: True
    """True for the name of a tool that the format can call."""
    failure_signs: tuple[str, ...] = ()
    """A region without calls counts as a failed call if it contains one of these; else it is plain text."""
