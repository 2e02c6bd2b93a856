"""What happens to events on their way to the client? Cut at the stops, checked against the request, noted.

One object a call, one look at each batch: where no stop touches it, it is handed on as it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from gateway.calls.timeline import CallTimeline
from gateway.core.errors import UpstreamError, UpstreamIgnoredParameter, UpstreamIncomplete
from gateway.core.events import Begun, Delta, Event, Finish, Usage
from gateway.core.exchange import Events, Exchange
from gateway.core.text_splice import TextSplice
from gateway.stream.output_parser import OutputParser
from gateway.stream.stop_cutter import Cutter
from gateway.stream.stop_search import stop_set

Count = Callable[[str], Awaitable[Usage]]
"""Counts the tokens of a call whose upstream did not; given all that was written."""

MAX_COUNTED = 16 * 1024 * 1024
"""Characters that are kept for ``Count``; of a longer answer there are no counts."""


class ResponseStream:
    """The events of one call, as the client shall have them."""

    __slots__ = (
        "_aside",
        "_choices",
        "_count",
        "_countable",
        "_cutter",
        "_events",
        "_failure",
        "_over",
        "_pending",
        "_progress",
        "_reader",
        "_stops",
        "_straight",
        "_streams",
        "_unfinished",
        "_wants_logprobs",
        "_written",
        "exhausted",
    )

    def __init__(
        self,
        exchange: Exchange,
        events: Events,
        progress: CallTimeline,
        count: Count | None,
        reader: OutputParser | None = None,
    ) -> None:
        """``count``: None where nothing here can count. ``reader``: None where text is nothing but content."""
        completes = exchange.endpoint != "embeddings"
        params = exchange.params
        asked = params.get("logprobs")
        self._events = events
        self._progress = progress
        self._count = count
        self._reader = reader
        self._streams = exchange.stream
        self._choices = len(exchange.prompts) * exchange.n or exchange.n
        self._stops = exchange.stops if "echo" not in params or not params["echo"] else ()
        self._cutter: Cutter | None = None
        """Made when it is first needed."""
        self._unfinished: set[int] | None = None if completes else set()
        """Choices without an end; None: nobody has looked yet, so all of them."""
        self._wants_logprobs = completes and asked is not None and asked is not False  # 0 asks for the chosen token's
        self._straight = completes and not self._wants_logprobs and count is None and reader is None
        """Is there nothing to do but to cut?"""
        self._aside: asyncio.Future[list[Event]] | None = None
        """What is being read beside the loop."""
        self._pending: Sequence[Event] = ()
        """The last batch, while what belongs behind it is awaited: held text, counts."""
        self._countable = MAX_COUNTED
        """Characters that ``_written`` may still take; below 0: too many have come."""
        self._written: list[str] = []
        """The text that has gone out, where it may have to be counted."""
        self._failure: UpstreamError | None = None
        """Raised once everything before it has been handed out."""
        self._over = False
        """Nothing more is read."""
        self.exhausted = False
        """See ``Events``."""

    async def next_batch(self) -> Sequence[Event]:
        """See ``Events``."""
        if self._over:
            return self._last()
        batch = await self._events.next_batch()
        if self._straight and (self._goes_on(batch) if self._streams else self._is_all(batch)):
            self._progress.saw(batch)
            return batch
        return await self._looked_at(batch)

    async def forward_text(self, passage: TextSplice) -> None:
        """See ``Events``."""
        if self._over or not self._straight or not self._streams:
            return
        if not self._stops:
            await self._events.forward_text(passage)
            return
        cutter = self._the_cutter()
        passage.halts = cutter.stops.first
        for index in tuple(passage.lanes):
            if not cutter.choice(index).clear:
                del passage.lanes[index]
        try:
            await self._events.forward_text(passage)
        finally:
            for index, lane in passage.lanes.items():
                cutter.choice(index).received += lane.passed

    async def take_pending(self) -> Sequence[Event]:
        """What is still held of a call that has failed: the text, and no end. Must be the last that is asked."""
        pending, read = self._pending, () if self._aside is None else await self._aside
        held = [event for event in (*pending, *read, *await self._held()) if not isinstance(event, Finish)]
        self._progress.saw(held)
        return held

    # ---------------------------------------------------------------- the two ordinary cases

    def _goes_on(self, batch: Sequence[Event]) -> bool:
        """Is this one piece of text that no stop touches, perhaps the first? Then it has been counted."""
        if not batch or len(batch) > 2:
            return False
        event = batch[-1]
        if type(event) is not Delta or (len(batch) == 2 and type(batch[0]) is not Begun):
            return False
        if not self._stops:
            return True
        choice = self._the_cutter().choice(event.index)
        if choice.touches(event):
            return False
        choice.received += len(event.text)
        return True

    def _is_all(self, batch: Sequence[Event]) -> bool:
        """Is this all of an answer with one choice, whose text no stop can begin in?"""
        if not self._events.exhausted or self._choices != 1 or self._unfinished is not None:
            return False
        begins = stop_set(self._stops).first.search if self._stops else None
        ended = False
        for event in batch:
            if isinstance(event, Delta):
                if ended or event.index or event.logprobs is not None:
                    return False
                if begins is not None and begins(event.text) is not None:
                    return False
            elif isinstance(event, Finish):
                if ended or event.index:
                    return False
                ended = True
        self._over = self.exhausted = ended
        return ended

    # ---------------------------------------------------------------- everything else

    async def _looked_at(self, batch: Sequence[Event]) -> Sequence[Event]:
        if self._unfinished is None:
            self._unfinished = set(range(self._choices))
        while True:
            ended = bool(batch) and self._events.exhausted
            if not batch:
                batch = await self._end()
            else:
                batch = await self._take(batch, ended=ended)
                if ended and self._count is None and not self._over:  # there is no need to ask once more
                    self._pending = batch
                    batch = [*batch, *held] if (held := await self._end()) else batch
                    self._pending = ()
            if self._over and self._failure is None and (usage := await self._counted(batch)) is not None:
                batch = [*batch, usage]
            if batch:
                self._progress.saw(batch)
                self.exhausted = ended and self._over and self._failure is None
                return batch
            if self._over:
                return self._last()
            batch = await self._events.next_batch()

    def _last(self) -> Sequence[Event]:
        """There is nothing more."""
        if self._failure is not None:
            raise self._failure
        return ()

    def _the_cutter(self) -> Cutter:
        cutter = self._cutter
        if cutter is None:
            cutter = self._cutter = Cutter(self._stops, self._choices)
        return cutter

    async def _take(self, batch: Sequence[Event], *, ended: bool) -> Sequence[Event]:
        """``ended``: the engine has nothing more to say."""
        if self._wants_logprobs:
            batch = self._scored(batch)
        if self._stops:
            batch = self._the_cutter().cut(batch)
        if self._count is not None:
            self._keep_for_count(batch)
        reader = self._reader
        if reader is not None:
            batch = await self._beside(reader.read, batch) if reader.weighs(batch) else reader.read(batch)
            self._progress.tool_parse_failures = reader.failures
        for event in batch:
            if type(event) is not Delta:
                batch = self._ended(batch)
                break
        # An engine that runs past the stop is closed at once; one that saw it may still send its counts.
        if self._streams and not ended:
            done = self._cutter is not None and self._cutter.done
            if (done or (reader is not None and reader.done)) and self._cut_here(batch):
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
        unfinished = self._unfinished
        assert unfinished is not None
        for event in batch:
            if isinstance(event, Finish):
                if event.index not in unfinished:
                    continue
                unfinished.remove(event.index)
            passed.append(event)
        return passed

    def _cut_here(self, batch: Sequence[Event]) -> bool:
        return self._progress.cut_by_gateway or any(
            isinstance(event, Finish) and event.source == "gateway" for event in batch
        )

    async def _end(self) -> Sequence[Event]:
        """What is still held; if a choice has no end, the failure comes behind it."""
        self._over = True
        nothing_held = self._reader is None and (self._cutter is None or self._cutter.done)
        held = () if nothing_held else self._ended(await self._held())
        if self._unfinished:
            self._failure = UpstreamIncomplete("the model's server ended its answer without a finish_reason")
        return held

    async def _held(self) -> Sequence[Event]:
        """What the cut and the reader hold; they hold nothing afterwards."""
        held: Sequence[Event] = self._cutter.close() if self._cutter is not None else ()
        if self._count is not None:
            self._keep_for_count(held)
        reader = self._reader
        if reader is not None:
            held = await self._beside(reader.close, held) if reader.weighs(held) else reader.close(held)
            self._progress.tool_parse_failures = reader.failures
        return held

    async def _beside(self, read: Callable[[Sequence[Event]], list[Event]], batch: Sequence[Event]) -> list[Event]:
        """Read a long text beside the loop: other calls go on meanwhile. It is read to its end in any case."""
        self._aside = asyncio.ensure_future(asyncio.to_thread(read, batch))
        out = await asyncio.shield(self._aside)
        self._aside = None
        return out

    def _keep_for_count(self, batch: Sequence[Event]) -> None:
        """Keep the text that may have to be counted, up to ``MAX_COUNTED``."""
        texts = [event.text for event in batch if isinstance(event, Delta)]
        self._countable -= sum(map(len, texts))
        if self._countable >= 0:
            self._written += texts
        else:
            self._written.clear()

    async def _counted(self, batch: Sequence[Event]) -> Usage | None:
        """The counts of an answer that came without them."""
        if self._count is None or self._countable < 0 or self._progress.usage is not None:
            return None
        if any(isinstance(event, Usage) for event in batch):
            return None
        self._pending = batch
        usage = await self._count("".join(self._written))
        self._pending = ()
        return usage
