"""Forwarding of plain text from an engine's socket to a client's socket without waking the task of the call.

Before forwarding, the layers of a call set which text must not be forwarded. After forwarding, the layers read how much
text was forwarded. Anything except plain text ends the forwarding and is processed by the general code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic


class ChoiceFrame:
    """The bytes around one choice's text in the client's stream."""

    __slots__ = ("after", "before", "forwarded")

    def __init__(self, before: bytes, after: bytes) -> None:
        self.before = before
        """Bytes of the frame before the text's JSON string."""
        self.after = after
        """Bytes of the frame after the text's JSON string."""
        self.forwarded = 0
        """The number of characters forwarded."""


class TextSplice:
    """One period of direct forwarding.

    ``gateway/edge`` creates the object with a frame for each choice whose first frame was sent. ``ResponseStream``
    removes frames and sets ``halts``. The backend forwards text, and records the amount and the time.
    """

    __slots__ = ("frames", "halts", "moments", "now", "write")

    def __init__(
        self, write: Callable[[bytes], bool], frames: dict[int, ChoiceFrame], now: Callable[[], float] = monotonic
    ) -> None:
        self.write = write
        """Sends a frame to the client. Returns False, and sends nothing, while the client applies back-pressure."""
        self.frames = frames
        """Frames by choice index; text of other choices is not forwarded."""
        self.now = now
        """Returns the monotonic time in seconds."""
        self.halts: re.Pattern[str] | None = None
        """Text in which this expression matches is not forwarded."""
        self.moments: list[float] = []
        """The monotonic time in seconds of each forwarded text, in order."""
