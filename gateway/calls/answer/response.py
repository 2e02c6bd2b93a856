"""Processes the events of one call for the client, in stages (``calls/answer/stages.py``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gateway.calls.answer.stages import Count, LogprobCheck, TokenCounter
from gateway.calls.timeline import CallTimeline
from gateway.core.errors import SEND_AGAIN, UpstreamIncomplete
from gateway.core.exchange import Events, Exchange, stops_to_cut
from gateway.core.text_splice import TextSplice, text_source
from gateway.stream.completion_builder import CompletionBuilder, fast_completion
from metatemplate.answers.stages import Stage
from metatemplate.answers.stops.stop_cutter import StopCutter
from metatemplate.values.events import Choice, Completion, Delta, Document, Event, Finish

if TYPE_CHECKING:
    from gateway.calls.answer.answer_check import AnswerCheck
    from gateway.calls.answer.token_data import TokenData
    from metatemplate.answers.output_parser import OutputParser


class ResponseStream:
    """The events of one call as the client receives them."""

    __slots__ = (
        "_answer_check",
        "_counter",
        "_cut",
        "_events",
        "_failure",
        "_in_thread",
        "_over",
        "_pending",
        "_plain",
        "_source",
        "_stages",
        "_streams",
        "_timeline",
        "_token_data",
        "_unfinished",
        "exhausted",
    )

    def __init__(
        self,
        exchange: Exchange,
        events: Events,
        timeline: CallTimeline,
        count: Count | None,
        parser: OutputParser | None = None,
        token_data: TokenData | None = None,
        answer_check: AnswerCheck | None = None,
    ) -> None:
        """Create the stream. ``count``: None if the gateway cannot count tokens.

        ``parser``: None if all text is content. ``token_data``: None if the client requested only OpenAI's fields.
        ``answer_check``: None if the client requested no structured output.
        """
        completes = exchange.endpoint != "embeddings"
        self._events = events
        self._timeline = timeline
        self._token_data = token_data
        self._answer_check = answer_check
        self._streams = exchange.stream
        self._counter = None if count is None else TokenCounter(count)
        self._stages = _stages(exchange, token_data, self._counter, parser) if completes else []
        self._plain = completes and answer_check is None
        """True if all stages allow that text is forwarded past them."""
        for stage in self._stages:
            self._plain = self._plain and stage.may_forward
        self._source = text_source(events) if exchange.stream and self._plain else None
        """Forwards text past this object. None if a stage or a delivery layer must receive every event."""
        self._unfinished = set(range((len(exchange.prompts) or 1) * exchange.n)) if completes else set[int]()
        """The indexes of the choices that have not ended."""
        self._cut = False
        """True if the gateway has ended a choice before the engine did."""
        self._in_thread: asyncio.Future[Sequence[Event]] | None = None
        """The batch that is being processed in a thread."""
        self._pending: Sequence[Event] = ()
        """The last batch, while the call still waits for the token counts or text that must follow this batch."""
        self._failure: Exception | None = None
        """The error to raise after all earlier events have been returned."""
        self._over = False
        """True if no more events are read from the upstream."""
        self.exhausted = False
        """True if all events have been returned. See ``Events``."""
        if parser is not None:
            timeline.output_parser = parser

    async def next_batch(self, first: Sequence[Event] = ()) -> Sequence[Event]:
        """Return the next events, or nothing at the end of the answer. See ``Events``.

        ``first``: the first batch of the upstream, if ``whole`` has read it.
        """
        while not self._over:
            batch = first or await self._events.next_batch()
            first = ()
            exhausted = bool(batch) and self._events.exhausted
            if not batch:
                batch = await self._finish(batch)
            else:
                for stage in self._stages:
                    heavy = stage.may_block and stage.is_heavy(batch)
                    batch = await self._run_in_thread(stage.process, batch) if heavy else stage.process(batch)
                    if stage.failure is not None:
                        self._over, self._failure = True, stage.failure
                for event in batch:
                    if type(event) is not Delta:
                        batch = self._drop_repeated_ends(batch)
                        break
                if exhausted:
                    if self._counter is None and not self._over:  # saves another ``next_batch`` of the upstream
                        batch = await self._finish(batch)
                elif self._cut and self._streams and not self._unfinished:
                    # The engine missed a stop, so its stream is closed at once. Otherwise, token counts may follow.
                    self._over = True
            if self._over and self._counter is not None and self._failure is None:
                self._pending = batch
                batch = [*batch, *await self._counter.usage()]
                self._pending = ()
            if batch and self._answer_check is not None:
                batch = await self._answer_check.read(batch)
                if self._answer_check.failure is not None:
                    self._over, self._failure = True, self._answer_check.failure
            if batch:
                if self._token_data is not None:
                    batch = await self._token_data.send(batch)
                self._timeline.events_received(batch)
                self.exhausted = exhausted and self._over and self._failure is None
                return batch
        if self._failure is not None:
            raise self._failure
        return ()

    async def whole(self, *, keep_events: bool = False) -> Completion | Document:
        """Return the whole answer, for a client that does not stream. Call this method once, without ``next_batch``.

        ``keep_events``: True to set ``Completion.events``.
        """
        batch = await self._events.next_batch()
        if self._plain and not self._streams and self._events.exhausted and len(self._unfinished) == 1:
            completion = fast_completion(batch)
            if completion is not None and self._passes(completion.choices[0]):
                self._timeline.events_received(batch)
                return completion
        batch = await self.next_batch(batch)
        builder = CompletionBuilder(keep_events=keep_events)
        document: Document | None = None
        while batch:
            for event in batch:
                if type(event) is Document:
                    document = event  # the usage may follow the last finish
                else:
                    builder.add(event)
            batch = await self.next_batch()
        if document is not None:
            return document
        completion = builder.result()
        return completion if self._token_data is None else await self._token_data.check(completion)

    @property
    def can_forward(self) -> bool:
        """True if plain text may be forwarded from the upstream to the client. Constant."""
        return self._source is not None

    async def forward_text(self, splice: TextSplice) -> None:
        """Forward text directly from the upstream to the client. See ``TextSource``."""
        if self._over or self._source is None:
            return
        for stage in self._stages:
            splice.halts = stage.halts or splice.halts
            for index in tuple(splice.frames):
                if not stage.is_clear(index):
                    del splice.frames[index]
        try:
            await self._source.forward_text(splice)
        finally:
            for stage in self._stages:
                for index, frame in splice.frames.items():
                    stage.forwarded(index, frame.forwarded)

    async def take_pending(self) -> Sequence[Event]:
        """Return the text that is still held back when a call fails, without finish events.

        Nothing if the answer is invalid. No other method may be called afterwards.
        """
        if self._answer_check is not None and self._answer_check.failure is not None:
            return ()
        pending, processed = self._pending, () if self._in_thread is None else await self._in_thread
        held = [event for event in (*pending, *processed, *await self._flush()) if not isinstance(event, Finish)]
        self._timeline.events_received(held)
        return held

    def _passes(self, choice: Choice) -> bool:
        """Return whether all stages would pass the only choice of an answer unchanged. False: not known."""
        for stage in self._stages:
            if not stage.passes(choice):
                return False
        return not choice.index and choice.logprobs is None

    def _drop_repeated_ends(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Return the batch without repeated ``Finish`` events of a choice (row C30 of ``docs/spec/reliability.md``)."""
        passed: list[Event] = []
        for event in batch:
            if isinstance(event, Finish):
                if event.index not in self._unfinished:
                    continue
                self._unfinished.remove(event.index)
                self._cut = self._cut or event.source == "gateway"
            passed.append(event)
        return passed

    async def _finish(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Return the last batch and all events that are still held back.

        Sets the failure if a choice has no ``Finish`` event.
        """
        self._over = True
        if self._stages:
            self._pending = batch
            if held := await self._flush():
                batch = [*batch, *self._drop_repeated_ends(held)]
            self._pending = ()
        if self._unfinished:
            self._failure = UpstreamIncomplete(
                f"the model's server ended its answer without a finish_reason; {SEND_AGAIN}"
            )
        return batch

    async def _flush(self) -> Sequence[Event]:
        """Remove and return the events that the stages hold back."""
        held: Sequence[Event] = ()
        for stage in self._stages:
            heavy = stage.may_block and stage.is_heavy(held)
            held = await self._run_in_thread(stage.flush, held) if heavy else stage.flush(held)
        return held

    async def _run_in_thread(
        self, step: Callable[[Sequence[Event]], Sequence[Event]], batch: Sequence[Event]
    ) -> Sequence[Event]:
        """Process a batch in a thread, so that other calls continue.

        If the call is cancelled, the thread still processes the batch to the end.
        """
        self._in_thread = asyncio.ensure_future(asyncio.to_thread(step, batch))
        processed = await asyncio.shield(self._in_thread)
        self._in_thread = None
        return processed


def _stages(
    exchange: Exchange, token_data: TokenData | None, counter: TokenCounter | None, parser: OutputParser | None
) -> list[Stage]:
    """Return the stages of an answer in order. See ``stages.py``."""
    stages: list[Stage] = []
    logprobs = exchange.params.get("logprobs")
    if token_data is not None:
        stages.append(token_data)
    if logprobs is not None and logprobs is not False:  # 0 requests them too
        stages.append(LogprobCheck())
    if stops := stops_to_cut(exchange):
        stages.append(StopCutter(stops))
    if counter is not None:
        stages.append(counter)
    if parser is not None:
        stages.append(parser)
    return stages
