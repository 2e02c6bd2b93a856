"""Forwarding of plain text from an engine's socket to a client's socket without waking the task of the call.

Forwarding is opt-in (``text_source``): events that do not offer it reach every layer and the client through
``next_batch``. Anything except plain text ends the forwarding and is processed by the general code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic
from typing import Protocol

NOTHING = re.compile(r"(?!)")
"""Matches no text."""


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
        self.halts = NOTHING
        """Text in which this expression matches is not forwarded. It matches single characters."""
        self.moments: list[float] = []
        """The monotonic time in seconds of each forwarded text, in order."""


class TextSource(Protocol):
    """Events whose plain text can be forwarded directly to the client."""

    async def forward_text(self, splice: TextSplice) -> None:
        """Forward plain text while ``splice`` allows it. Call after ``next_batch`` has returned the first events.

        Returns at the first event that cannot be forwarded; ``next_batch`` returns this event. Raises only on
        cancellation, because ``next_batch`` reports failures.
        """


def text_source(events: object) -> TextSource | None:
    """Return the object that forwards the text of these ``Events``. None: all events must pass ``next_batch``.

    The object is the attribute ``text_source`` of the events. A delivery layer has this attribute only if it neither
    changes nor needs the text.
    """
    source: TextSource | None = getattr(events, "text_source", None)
    return source
