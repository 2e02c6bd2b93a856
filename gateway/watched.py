"""What happens to events on their way to the client? Cut at the stops, checked against the request, noted.

One object a call, one look at each batch: where no stop touches it, it is handed on as it came.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from gateway.core.errors import UpstreamError, UpstreamIgnoredParameter, UpstreamIncomplete
from gateway.core.events import Delta, Event, Finish, Usage
from gateway.core.exchange import Events, Exchange
from gateway.progress import Progress
from gateway.stream.cut import Cutter

Count = Callable[[str], Awaitable[Usage]]
"""Counts the tokens of a call whose upstream did not; given all that was written."""


class Watched:
    """The events of one call, as the client shall have them."""

    __slots__ = (
        "_count",
        "_cutter",
        "_events",
        "_failure",
        "_over",
        "_progress",
        "_streams",
        "_unfinished",
        "_wants_logprobs",
        "_written",
    )

    over = False
    """See ``Events``."""

    def __init__(self, exchange: Exchange, events: Events, progress: Progress, count: Count | None) -> None:
        """``count``: None where nothing here can count."""
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
        """The text that has gone out, where it may have to be counted."""
        self._failure: UpstreamError | None = None
        """Raised once everything before it has been handed out."""
        self._over = False

    async def more(self) -> Sequence[Event]:
        """See ``Events``."""
        batch: Sequence[Event] = ()
        while not batch and not self._over:
            batch = await self._events.more()
            batch = self._take(batch) if batch else self._end()
            if self._over and self._failure is None and (usage := await self._counted(batch)) is not None:
                batch = [*batch, usage]
        if batch:
            self._progress.saw(batch)
        elif self._failure is not None:
            raise self._failure
        return batch

    def _take(self, batch: Sequence[Event]) -> Sequence[Event]:
        if self._wants_logprobs:
            batch = self._scored(batch)
        if self._cutter is not None:
            batch = self._cutter.cut(batch)
        for event in batch:
            if type(event) is not Delta:
                batch = self._ended(batch)
                break
        if self._count is not None:
            self._written += [event.text for event in batch if isinstance(event, Delta)]
        # An engine that runs past the stop is closed at once; one that saw it may still send its counts.
        if self._streams and self._cutter is not None and self._cutter.done and self._cut_here(batch):
            self._over = True
        return batch

    def _scored(self, batch: Sequence[Event]) -> Sequence[Event]:
        """The batch, if its first text comes with the scores that were asked for; else what came before that text."""
        for at, event in enumerate(batch):
            if isinstance(event, Delta) and event.text:
                self._wants_logprobs = False
                if event.logprobs is None:
                    self._over = True
                    self._failure = UpstreamIgnoredParameter(
                        "the model's server ignored logprobs; scores made without them would be wrong",
                        param="logprobs",
                    )
                    return batch[:at]
                break
        return batch

    def _ended(self, batch: Sequence[Event]) -> Sequence[Event]:
        """The batch, in which choices may end: of several ends of one choice the first stands (row C30)."""
        passed: list[Event] = []
        for event in batch:
            if isinstance(event, Finish):
                if event.index not in self._unfinished:
                    continue
                self._unfinished.remove(event.index)
            passed.append(event)
        return passed

    def _cut_here(self, batch: Sequence[Event]) -> bool:
        return self._progress.cut_by_gateway or any(
            isinstance(event, Finish) and event.source == "gateway" for event in batch
        )

    def _end(self) -> Sequence[Event]:
        self._over = True
        held = self._ended(self._cutter.close()) if self._cutter is not None else ()
        if self._unfinished:
            self._failure = UpstreamIncomplete("the model's server ended its answer without a finish_reason")
            return ()
        if self._count is not None:
            self._written += [event.text for event in held if isinstance(event, Delta)]
        return held

    async def _counted(self, batch: Sequence[Event]) -> Usage | None:
        """The counts of an answer that came without them."""
        if self._count is None or self._progress.usage is not None:
            return None
        if any(isinstance(event, Usage) for event in batch):
            return None
        return await self._count("".join(self._written))
