"""What happens to events on their way to the client? Cut at the stops, checked against the request, noted.

One object a call: what comes in is looked at once, what goes out is handed on one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from gateway.core.errors import UpstreamIgnoredParameter, UpstreamIncomplete
from gateway.core.events import Delta, Event, Finish, Usage
from gateway.core.exchange import Exchange
from gateway.progress import Progress
from gateway.stream.cut import Cutter

Count = Callable[[str], Awaitable[Usage | None]]
"""Counts the tokens of a call whose upstream did not; given all that was written."""


class Watched:
    """The events of one call, as the client shall have them."""

    __slots__ = (
        "_count",
        "_cutter",
        "_events",
        "_over",
        "_progress",
        "_ready",
        "_streams",
        "_unfinished",
        "_wants_logprobs",
        "_written",
    )

    def __init__(self, exchange: Exchange, events: AsyncIterator[Event], progress: Progress, count: Count) -> None:
        completes = exchange.endpoint != "embeddings"
        choices = max(len(exchange.prompts), 1) * exchange.n
        self._events = events
        self._progress = progress
        self._count = count
        self._streams = exchange.stream
        self._cutter = Cutter(exchange.stops, choices) if exchange.stops and not exchange.params.get("echo") else None
        self._unfinished = set(range(choices)) if completes else set()
        asked = exchange.params.get("logprobs")
        self._wants_logprobs = completes and asked is not None and asked is not False  # 0 asks for the chosen token's
        self._written: list[str] = []
        self._ready: deque[Event] = deque()
        self._over = False

    def __aiter__(self) -> Watched:
        return self

    async def __anext__(self) -> Event:
        while not self._ready:
            if self._over:
                raise StopAsyncIteration
            try:
                event = await self._events.__anext__()
            except StopAsyncIteration:
                await self._end()
            else:
                await self._take(event)
        event = self._ready.popleft()
        self._progress.saw(event)
        return event

    async def _take(self, event: Event) -> None:
        if self._wants_logprobs and isinstance(event, Delta) and event.text:
            if event.logprobs is None:
                raise UpstreamIgnoredParameter(
                    "the model's server ignored logprobs; scores made without them would be wrong", param="logprobs"
                )
            self._wants_logprobs = False
        if self._cutter is None:
            self._pass(event)
            return
        for said in self._cutter.feed(event):
            self._pass(said)
        # An engine that runs past the stop is closed at once; one that saw it may still send its counts.
        if self._cutter.done and self._streams and self._cut_here():
            await self._close()

    def _pass(self, event: Event) -> None:
        if isinstance(event, Delta):
            self._written.append(event.text)
        elif isinstance(event, Finish):
            if event.index not in self._unfinished:
                return  # of several ends of one choice the first stands (row C30)
            self._unfinished.remove(event.index)
        self._ready.append(event)

    def _cut_here(self) -> bool:
        ends = (event for event in self._ready if isinstance(event, Finish))
        return self._progress.cut_by_gateway or any(end.source == "gateway" for end in ends)

    async def _end(self) -> None:
        for said in self._cutter.close() if self._cutter is not None else ():
            self._pass(said)
        if self._unfinished:
            self._over = True
            raise UpstreamIncomplete("the model's server ended its answer without a finish_reason")
        await self._close()

    async def _close(self) -> None:
        self._over = True
        counted = self._progress.usage is not None or any(isinstance(event, Usage) for event in self._ready)
        if not counted and (usage := await self._count("".join(self._written))) is not None:
            self._ready.append(usage)
