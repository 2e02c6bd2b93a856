"""How does text pass from an engine's socket to a client's while nobody looks at it?

Whoever stands between the two says beforehand what may not pass, and reads afterwards what has passed; on the way
itself nobody is called. Anything but the plainest text stops the passage, and is then looked at by everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Lane:
    """The way of one choice's text."""

    __slots__ = ("before", "behind", "passed")

    def __init__(self, before: bytes, behind: bytes) -> None:
        self.before = before
        """What stands before the text's JSON string in the client's frame."""
        self.behind = behind
        """What stands behind it."""
        self.passed = 0
        """Characters that have passed."""


class Passage:
    """The lanes of a stream, and what holds for all of them."""

    __slots__ = ("halts", "lanes", "moments", "write")

    def __init__(self, write: Callable[[bytes], bool], moments: list[float]) -> None:
        self.write = write
        """Takes a frame for the client; False: it has done nothing, because the client reads too slowly."""
        self.moments = moments
        """When something has gone to the client, in monotonic seconds; grows by one with each text that passes."""
        self.lanes: dict[int, Lane] = {}
        """By choice; the text of other choices does not pass."""
        self.halts: Callable[[str], Any] | None = None
        """Text that this finds anything in does not pass."""
