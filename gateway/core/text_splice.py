"""How does text pass from an engine's socket to a client's while nobody looks at it?

Whoever stands between the two says beforehand what may not pass, and reads afterwards what has passed; on the way
itself nobody is called. Anything but the plainest text ends the passage, and is then looked at by everybody.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic


class ChoiceFrame:
    """The way of one choice's text."""

    __slots__ = ("before", "behind", "passed")

    def __init__(self, before: bytes, behind: bytes) -> None:
        self.before = before
        """What stands before the text's JSON string in the client's frame."""
        self.behind = behind
        """What stands behind it."""
        self.passed = 0
        """Characters that have passed."""


class TextSplice:
    """One passage: from when a stream is left to itself until something has to be looked at.

    The edge makes it, with a lane for each choice that it has introduced; the cut takes lanes away and says what
    halts; the backend lets text pass, and notes it. Afterwards the cut reads the characters, the clock and the
    progress the moments.
    """

    __slots__ = ("halts", "lanes", "moments", "now", "write")

    def __init__(
        self, write: Callable[[bytes], bool], lanes: dict[int, ChoiceFrame], now: Callable[[], float] = monotonic
    ) -> None:
        self.write = write
        """Takes a frame for the client; False: it has done nothing, because the client reads too slowly."""
        self.lanes = lanes
        """By choice; the text of other choices does not pass."""
        self.now = now
        """Monotonic seconds."""
        self.halts: re.Pattern[str] | None = None
        """Text in which this is found does not pass."""
        self.moments: list[float] = []
        """When text has passed, in order."""
