"""What is a format of tool calls, and which pieces does a text with calls fall into?

A format says where a region that may hold calls begins and ends, and reads a whole region. ``scan.py`` walks the text.
Nothing is ever half read: a region becomes calls when all of it is there and all of it is right, else it stays text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.core.frozen import dataclass
from gateway.stream.stop_search import StopSet


@dataclass(frozen=True, slots=True)
class Called:
    """One call, complete."""

    name: str
    arguments: str
    """The text of a JSON object: where the format holds JSON, the model's own bytes."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Text that began like a call and is none: it stays text, and is counted."""

    text: str


Piece = str | Called | Unread
"""More of the content (never empty), a call, or what only looked like one."""

Calls = tuple[Called, ...]

MAX_CALLS = 256
"""Calls in one answer; what would be more stays text."""

_NONE = StopSet(())


class Region(Protocol):
    """One stretch of text that may hold calls, as it arrives; a marker that opens it is fed first, and whole."""

    def feed(self, text: str) -> int | None:
        """How much of this text still belongs to the region, once its end is known; None: all, and there may be more.

        Less than 0: the last of what was fed before does not belong to it either. Must not be fed after its end.
        """
        ...

    @property
    def whole(self) -> bool:
        """It has come to its own end. False: it is still open, or ended before something that no call can hold."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """How one family of models writes its calls."""

    region: Callable[[], Region]
    """A region that is about to be opened."""
    read: Callable[[str], Calls | None]
    """The calls of a whole region; None: it holds none, or something beside them. Never raises."""
    markers: StopSet = _NONE
    """Texts that open a region wherever they stand."""
    openers: str = ""
    """Characters that open one where nothing but calls has been said before."""
    separator: str = ""
    """What may stand once between two such regions."""
    closing: str = ""
    """What ends a region, and may have been the stop that ended the answer: then it is not in the text."""
    lines: bool = False
    """The markers begin with a line's end; the answer begins a line too."""
    carries: Callable[[str], bool] = lambda name: True
    """Can a tool of this name be called? Asked of names that a request may give."""
    telling: tuple[str, ...] = ()
    """A region that is no call, and has none of these in it, was ordinary text; with one, a call that failed."""
