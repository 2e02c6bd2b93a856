"""An event stream made from an async iterator of events, for backends and layers that are generators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from metatemplate.values.events import Event


class IteratorEvents:
    """``Events`` from an async iterator. Each batch contains one event."""

    __slots__ = ("_events",)

    exhausted = False
    """Always False: the end of an iterator is not known before it is reached."""

    def __init__(self, events: AsyncIterator[Event]) -> None:
        self._events = events

    async def next_batch(self) -> Sequence[Event]:
        """Return a batch with the next event; empty at the end of the stream. See ``Events``."""
        async for event in self._events:
            return (event,)
        return ()
