"""Processes the events of one call for the client: cuts the text at stops, parses it, and checks log probabilities."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from gateway.calls.timeline import CallTimeline
from gateway.calls.token_data import TokenData
from gateway.core.completion import Choice, Completion
from gateway.core.errors import SEND_AGAIN, UpstreamError, UpstreamIgnoredParameter, UpstreamIncomplete
from gateway.core.events import Delta, Document, Event, Finish, Usage
from gateway.core.exchange import Events, Exchange
from gateway.core.text_splice import TextSplice, text_source
from gateway.stream.completion_builder import CompletionBuilder, fast_completion
from gateway.stream.output_parser import OutputParser
from gateway.stream.prompt_logprobs import CHECK_ENGINE
from gateway.stream.stop_cutter import StopCutter
from gateway.stream.stop_search import stop_set

Count = Callable[[str], Awaitable[Usage]]
"""A function that counts the tokens of a call from its complete answer. Used if the upstream sent no token counts."""

MAX_COUNTED = 16 * 1024 * 1024
"""Maximum characters of an answer that are kept for ``Count``. The tokens of a longer answer are not counted."""


class ResponseStream:
    """The events of one call as the client receives them."""

    __slots__ = (
        "_choices", "_count", "_count_room", "_count_texts", "_cutter", "_events", "_failure", "_first", "_over",
        "_parser", "_parsing", "_pending", "_plain", "_source", "_stops", "_streams", "_timeline", "_token_data",
        "_unfinished", "_wants_logprobs", "exhausted",
    )  # fmt: skip

    def __init__(
        self,
        exchange: Exchange,
        events: Events,
        timeline: CallTimeline,
        count: Count | None,
        parser: OutputParser | None = None,
        token_data: TokenData | None = None,
    ) -> None:
        """Create the stream. ``count``: None if the gateway cannot count tokens.

        ``parser``: None if all text is content. ``token_data``: None if the client requested only OpenAI's fields.
        """
        completes = exchange.endpoint != "embeddings"
        params = exchange.params
        logprobs = params.get("logprobs")
        self._events = events
        self._timeline = timeline
        self._count = count
        self._parser = parser
        self._token_data = token_data
        self._streams = exchange.stream
        self._choices = len(exchange.prompts) * exchange.n or exchange.n
        self._stops = exchange.stops if "echo" not in params or not params["echo"] else ()
        self._cutter: StopCutter | None = None
        """Cuts the text at stops. ``_get_cutter`` creates this object when it is first needed."""
        self._unfinished: set[int] | None = None if completes else set()
        """The indexes of the choices that have not ended. None before the first event."""
        self._wants_logprobs = completes and logprobs is not None and logprobs is not False  # 0 requests them too
        self._plain = completes and not self._wants_logprobs and count is None and parser is None and token_data is None
        """True if the text is only cut at stops, and nothing is parsed or checked."""
        self._source = text_source(events) if self._plain and exchange.stream else None
        """Forwards text past this object. None if every event must be processed here or in a delivery layer."""
        self._parsing: asyncio.Future[list[Event]] | None = None
        """The batch that is being parsed in a thread."""
        self._first: Sequence[Event] = ()
        """The first batch, if ``whole`` has read it and ``next_batch`` has not processed it yet."""
        self._pending: Sequence[Event] = ()
        """The last batch, while the call still waits for the token counts or text that must follow this batch."""
        self._count_room = MAX_COUNTED
        """The number of characters that may still be added to ``_count_texts``. Negative if the answer is too long."""
        self._count_texts: list[str] = []
        self._failure: UpstreamError | None = None
        """The error to raise after all earlier events have been returned."""
        self._over = False
        """True if no more events are read from the upstream."""
        self.exhausted = False
        """True if all events have been returned. See ``Events``."""

    async def next_batch(self) -> Sequence[Event]:
        """Return the next events, or nothing at the end of the answer. See ``Events``."""
        if self._over:
            return self._end_of_stream()
        batch = self._first or await self._events.next_batch()
        self._first = ()
        if self._unfinished is None:
            self._unfinished = set(range(self._choices))
        while True:
            ended = bool(batch) and self._events.exhausted
            if not batch:
                batch = await self._finish()
            else:
                batch = await self._process(batch, ended=ended)
                if ended and self._count is None and not self._over:  # saves another ``next_batch`` of the upstream
                    self._pending = batch
                    batch = [*batch, *held] if (held := await self._finish()) else batch
                    self._pending = ()
            if self._over and self._failure is None and (usage := await self._counted(batch)) is not None:
                batch = [*batch, usage]
            if batch:
                if self._token_data is not None:
                    batch = await self._token_data.send(batch)
                self._timeline.events_received(batch)
                self.exhausted = ended and self._over and self._failure is None
                return batch
            if self._over:
                return self._end_of_stream()
            batch = await self._events.next_batch()

    async def whole(self, *, keep_events: bool = False) -> Completion | Document:
        """Return the whole answer, for a client that does not stream. Call this method once, without ``next_batch``.

        ``keep_events``: True to set ``Completion.events``.
        """
        self._first = batch = await self._events.next_batch()
        if self._plain and not self._streams and self._events.exhausted and self._choices == 1:
            completion = fast_completion(batch)
            if completion is not None and self._has_no_stop(completion.choices[0]):
                self._timeline.events_received(batch)
                return completion
        batch = await self.next_batch()
        if self.exhausted and self._token_data is None and (completion := fast_completion(batch)) is not None:
            return completion
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
        if not self._stops:
            await self._source.forward_text(splice)
            return
        cutter = self._get_cutter()
        splice.halts = cutter.stops.first
        for index in tuple(splice.frames):
            if not cutter.choice(index).clear:
                del splice.frames[index]
        try:
            await self._source.forward_text(splice)
        finally:
            for index, frame in splice.frames.items():
                cutter.choice(index).received += frame.forwarded

    async def take_pending(self) -> Sequence[Event]:
        """Return the text that is still held back when a call fails, without finish events.

        No other method may be called afterwards.
        """
        pending, parsed = self._pending, () if self._parsing is None else await self._parsing
        held = [event for event in (*pending, *parsed, *await self._take_held()) if not isinstance(event, Finish)]
        self._timeline.events_received(held)
        return held

    def _has_no_stop(self, choice: Choice) -> bool:
        """Return whether no character of the text begins a stop string. Such a text needs no cutting."""
        if choice.index or choice.logprobs is not None:
            return False
        return not self._stops or stop_set(self._stops).first.search(choice.text) is None

    def _end_of_stream(self) -> Sequence[Event]:
        if self._failure is not None:
            raise self._failure
        return ()

    def _get_cutter(self) -> StopCutter:
        if self._cutter is None:
            self._cutter = StopCutter(self._stops, self._choices)
        return self._cutter

    async def _process(self, batch: Sequence[Event], *, ended: bool) -> Sequence[Event]:
        """Check, cut and parse a batch. ``ended``: whether the upstream has sent all events."""
        if self._token_data is not None:
            self._token_data.receive(batch)
        if self._wants_logprobs:
            batch = self._check_logprobs(batch)
        if self._stops:
            batch = self._get_cutter().cut(batch)
        if self._count is not None:
            self._keep_for_count(batch)
        parser = self._parser
        if parser is not None:
            batch = await self._parse(parser.read, batch)
        for event in batch:
            if type(event) is not Delta:
                batch = self._drop_repeated_ends(batch)
                break
        # If the engine missed the stop, its stream is closed at once. If not, it may still send its token counts.
        if self._streams and not ended:
            done = (self._cutter is not None and self._cutter.done) or (parser is not None and parser.done)
            cut = any(isinstance(event, Finish) and event.source == "gateway" for event in batch)
            if done and (cut or self._timeline.cut_by_gateway):
                self._over = True
        return batch

    def _check_logprobs(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Return the batch if its first text has the requested log probabilities.

        If the log probabilities are missing, return only the events before that text, and set the failure.
        """
        for at, event in enumerate(batch):
            if isinstance(event, Delta) and event.text:
                self._wants_logprobs = False
                if event.logprobs is None:
                    self._over = True
                    self._failure = UpstreamIgnoredParameter(
                        f"the model's server ignored logprobs; {CHECK_ENGINE}", param="logprobs"
                    )
                    return batch[:at]
                break
        return batch

    def _drop_repeated_ends(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Return the batch without repeated ``Finish`` events of a choice (row C30 of ``docs/spec/reliability.md``)."""
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

    async def _finish(self) -> Sequence[Event]:
        """Return the events that are still held back when the upstream has ended.

        Sets the failure if a choice has no ``Finish`` event.
        """
        self._over = True
        nothing_held = self._parser is None and (self._cutter is None or self._cutter.done)
        held = () if nothing_held else self._drop_repeated_ends(await self._take_held())
        if self._unfinished:
            self._failure = UpstreamIncomplete(
                f"the model's server ended its answer without a finish_reason; {SEND_AGAIN}"
            )
        return held

    async def _take_held(self) -> Sequence[Event]:
        """Remove and return the events that the stop cutter and the parser hold back."""
        held: Sequence[Event] = self._cutter.close() if self._cutter is not None else ()
        if self._count is not None:
            self._keep_for_count(held)
        return held if self._parser is None else await self._parse(self._parser.close, held)

    async def _parse(self, parse: Callable[[Sequence[Event]], list[Event]], batch: Sequence[Event]) -> list[Event]:
        """Parse a batch. A long text is parsed in a thread, so that other calls continue.

        If the call is cancelled, the thread still parses to the end.
        """
        assert self._parser is not None
        if self._parser.is_heavy(batch):
            self._parsing = asyncio.ensure_future(asyncio.to_thread(parse, batch))
            parsed = await asyncio.shield(self._parsing)
            self._parsing = None
        else:
            parsed = parse(batch)
        self._timeline.tool_parse_failures = self._parser.failures
        return parsed

    def _keep_for_count(self, batch: Sequence[Event]) -> None:
        texts = [event.text for event in batch if isinstance(event, Delta)]
        self._count_room -= sum(map(len, texts))
        if self._count_room >= 0:
            self._count_texts += texts
        else:
            self._count_texts.clear()

    async def _counted(self, batch: Sequence[Event]) -> Usage | None:
        """Count the tokens of the answer if the upstream sent no token counts. Otherwise return None.

        ``batch``: the last batch of the answer.
        """
        if self._count is None or self._count_room < 0 or self._timeline.usage is not None:
            return None
        if any(isinstance(event, Usage) for event in batch):
            return None
        self._pending = batch
        usage = await self._count("".join(self._count_texts))
        self._pending = ()
        return usage
