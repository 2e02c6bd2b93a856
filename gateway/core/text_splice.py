"""Forwarding of plain text from an engine's socket to a client's without waking the task of the call.

Before it, the layers set which text may not be forwarded; after it, they read how much was. Everything but plain text
ends the forwarding and takes the general path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic


class ChoiceFrame:
    """Frame around one choice's text in the client's stream."""

    __slots__ = ("after", "before", "forwarded")

    def __init__(self, before: bytes, after: bytes) -> None:
        self.before = before
        """Bytes of the frame before the text's JSON string."""
        self.after = after
        """Bytes of the frame after it."""
        self.forwarded = 0
        """Characters forwarded."""


class TextSplice:
    """One stretch of direct forwarding.

    The edge creates it with a frame for each choice whose first frame is sent; ``ResponseStream`` removes frames and
    sets ``halts``; the backend forwards text and records it.
    """

    __slots__ = ("frames", "halts", "moments", "now", "write")

    def __init__(
        self, write: Callable[[bytes], bool], frames: dict[int, ChoiceFrame], now: Callable[[], float] = monotonic
    ) -> None:
        self.write = write
        """Sends a frame to the client. Returns False, and sends nothing, while the client applies back-pressure."""
        self.frames = frames
        """Frames by choice; text of other choices is not forwarded."""
        self.now = now
        """Monotonic seconds."""
        self.halts: re.Pattern[str] | None = None
        """Text in which this matches is not forwarded."""
        self.moments: list[float] = []
        """Times of forwarding, in order."""
