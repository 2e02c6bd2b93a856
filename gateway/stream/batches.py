"""How do the few layers that are generators give batches? One event each.

The way of every call does not come through here: a batch is handed on as it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from gateway.core.events import Event
from gateway.core.text_splice import TextSplice


class Singles:
    """The events of an iterator, each a batch of its own."""

    __slots__ = ("_events",)

    exhausted = False
    """See ``Events``: an iterator does not tell."""

    def __init__(self, events: AsyncIterator[Event]) -> None:
        self._events = events

    async def forward_text(self, passage: TextSplice) -> None:
        """See ``Events``: there is no short way."""

    async def next_batch(self) -> Sequence[Event]:
        """See ``Events``."""
        async for event in self._events:
            return (event,)
        return ()
