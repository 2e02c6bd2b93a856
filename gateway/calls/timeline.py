"""Writes the ``Record`` of a call: its times and counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from operator import sub
from typing import TYPE_CHECKING

from gateway.calls.admission.trace_context import trace_of
from gateway.calls.answer.cut_answers import CutAnswers
from gateway.core.exchange import NO_ATTEMPTS, AttemptLog
from gateway.telemetry.metrics import NumberSeries
from gateway.telemetry.record import Record
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import Begun, Delta, Event, Finish, Usage, is_content

if TYPE_CHECKING:
    from gateway.storage.recorder import CallRecording
    from metatemplate.answers.output_parser import OutputParser

UNKNOWN_MODEL = "unknown"
"""The model name in metrics and log lines for a call whose model is not known yet."""


class CallTimeline(Record):
    """The record of a running call, with its times and counts. Only the task that runs the call changes this object."""

    __slots__ = (
        "_in_flight",
        "_now",
        "_opened",
        "_received",
        "_run_notice",
        "_upstream_end",
        "_upstream_first",
        "_without_content",
        "_written",
        "attempt_log",
        "cut_answers",
        "delivered",
        "delivery_notices",
        "gauge",
        "output_parser",
        "recording",
        "usage",
    )

    def __init__(
        self,
        endpoint: str,
        request_id: str,
        received: float,
        headers: Mapping[bytes, bytes] = EMPTY_MAPPING,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``headers``: those of the request, which may name the trace to which the call belongs."""
        # ``super()`` makes an object, and every call comes here.
        Record.__init__(self, request_id, endpoint, UNKNOWN_MODEL, "", 0, False, 0.0)
        if b"traceparent" in headers:
            self.trace = trace_of(headers)
        self._now = now
        self._received = received
        self._opened: float | None = None
        """The time at which the first backend was opened. None before that time."""
        self._upstream_first: float | None = None
        self._upstream_end: float | None = None
        self._written: list[float] = []
        """The time of each write of content to the client's connection."""
        self.attempt_log = NO_ATTEMPTS
        """The log of the call's attempts."""
        self.gauge: Mapping[tuple[str, ...], NumberSeries]
        """The gauge ``gateway_in_flight``. Set before ``count_for`` is called."""
        self._in_flight: NumberSeries | None = None
        """The series of the gauge that counts this call. None before ``count_for``."""
        self.delivered: list[Event] | None = None
        """The events that the client receives, if the call is recorded."""
        self.recording: CallRecording | None = None
        """The recording of the call. None if the call is not recorded."""
        self._run_notice: tuple[str, ...] = ()
        """The notice of ``run_not_recorded``. Empty without such a notice."""
        self._start_answer()

    def restart(self) -> None:
        """Set the values that describe the answer to those of a call without answer.

        Call when a call with several turns starts again with another model.
        """
        self._start_answer()
        self.bos_anomaly = False
        self.stop_cuts = self.template_notices = self.markers = ()

    def _start_answer(self) -> None:
        self.cut_answers = CutAnswers()
        self._without_content = self.cut_answers.without_content
        """The set ``cut_answers.without_content``, stored here to save a look-up for each event of a stream."""
        self.output_parser: OutputParser | None = None
        """The parser of the latest answer. None if all text is content."""
        self.usage: Usage | None = None
        self.delivery_notices = [*self._run_notice]

    def count_for(self, model: str) -> None:
        """Count the running call for a model until it ends, and no longer for the model of an earlier ``count_for``."""
        if self._in_flight is not None:
            self._in_flight.value -= 1
        self._in_flight = series = self.gauge[self.endpoint, model]
        series.value += 1

    def admitted(self) -> None:
        """Store the admission time. Call when the body of the client's request has been parsed and checked."""
        self.admission = self._now() - self._received

    def run_not_recorded(self, notice: str) -> None:
        """Add the notice of a call that names a run and is not recorded. Call when the call is admitted."""
        self._run_notice = (notice,)
        self.delivery_notices.append(notice)

    def queue_waited(self, seconds: float) -> None:
        """Store the time that the call has spent in the queue of its model."""
        self.queue_wait = seconds

    def backend_opening(self, attempts: AttemptLog) -> None:
        """Store the time at which the first backend is opened. Call before each backend is opened.

        ``attempts``: the log of the call's attempts.
        """
        self.attempt_log = attempts
        if self.recording is not None:
            attempts.recorded = self.recording.exchanges
        if self._opened is None:
            self._opened = self._now()

    def backend_closed(self) -> None:
        """Store the time at which the backend was closed. Call after each backend is closed."""
        self._upstream_end = self._now()

    def events_written(self, events: Sequence[Event]) -> None:
        """Store the time of each content in a batch. Call after the batch was written to the client."""
        now: float | None = None
        for event in events:
            if type(event) is Delta and (event.text or is_content(event)):
                now = now or self._now()
                self._written.append(now)

    def text_forwarded(self, moments: Sequence[float]) -> None:
        """Store the times of text that was forwarded directly to the client. ``moments``: the time of each write."""
        self._written += moments

    def events_received(self, events: Sequence[Event]) -> None:
        """Read the events of a batch. Call after the batch has been cut and parsed, before the client receives it."""
        if self.delivered is not None:
            self.delivered += events
        for event in events:
            if type(event) is Delta:
                if self._without_content:
                    self.cut_answers.read(event)
                    if self._upstream_first is None and (event.text or is_content(event)):
                        self._upstream_first = self._now()
            elif type(event) is Finish:
                if event.reason == "length" or event.index in self._without_content:
                    self.cut_answers.end(event)
                if event.reason == "stop":
                    self.stop_cuts += (event.source,)
                    if event.matched is None:
                        self.cut_answers.unknown_stops.append(event.index)
            elif type(event) is Usage:
                self.usage = event
                if event.completion >= self.cut_answers.limit:
                    self.cut_answers.reach_limit(event)
            elif type(event) is Begun:
                for notice in event.notices:
                    self.delivery_notices.append(notice)
                    self.bos_anomaly = self.bos_anomaly or notice.startswith("bos:")
            elif self._upstream_first is None:  # a ``Document``: a whole answer
                self._upstream_first = self._now()

    def notices(self) -> list[str]:
        """Return the notices of the delivery, and for each choice in ``cut_answers`` except ``length``."""
        if not self.cut_answers.found:
            return self.delivery_notices
        cut = sorted(self.cut_answers.reasons(self.usage).items())
        named = [f"answer_cut: choices[{index}]={reason}" for index, reason in cut if reason != "length"]
        return self.delivery_notices + named

    @property
    def begun(self) -> bool:
        """True if content has been written to the client."""
        return bool(self._written)

    def elapsed_and_overhead(self) -> tuple[float, float]:
        """Return the seconds since the head of the client's request was received, and those spent in the gateway.

        In the latter, the call waited neither in the queue nor for the upstream.
        """
        now = self._now()
        elapsed, opened = now - self._received, self._opened
        overhead = elapsed - (self.queue_wait or 0.0)
        if opened is not None:
            overhead -= (self._upstream_end or self._upstream_first or now) - opened
        return elapsed, overhead if overhead > 0.0 else 0.0

    def end(self, outcome: str, status: int, gone_phase: str = "") -> None:
        """Complete the record when the call has ended. The call no longer counts as running."""
        if self._in_flight is not None:
            self._in_flight.value -= 1
        self.duration = self._now() - self._received
        self.outcome, self.status, self.gone_phase = outcome, status, gone_phase
        log, usage, opened, written = self.attempt_log, self.usage, self._opened, self._written
        self.target, self.attempts, self.cache = log.target, log.count, log.cache
        if log.failures:
            self.failed_attempts = tuple(log.failed_attempts())
        if opened is not None:
            if self._upstream_first is not None:
                self.upstream_first = self._upstream_first - opened
            if self._upstream_end is not None:
                self.upstream = self._upstream_end - opened
        overhead = self.duration - (self.queue_wait or 0.0) - (self.upstream or 0.0)
        self.overhead = overhead if overhead > 0.0 else 0.0
        if written:
            self.first_token = written[0] - self._received
            self.gaps = tuple(map(sub, written[1:], written))
        if usage is not None:
            self.prompt_tokens, self.completion_tokens = usage.prompt, usage.completion
            self.usage_source = "cache" if log.cache == "hit" else usage.source
        if self.delivery_notices:
            self.misspelled = tuple([one for one in self.delivery_notices if "(did you mean" in one])
        if self.cut_answers.found:
            self.answers_cut = tuple(self.cut_answers.reasons(usage).values())
        if self.output_parser is not None:
            self.tool_parse_failures = self.output_parser.failures
