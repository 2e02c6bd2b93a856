"""Collects the times and counts of one call, and makes the ``Record`` of the call at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from operator import sub

from gateway.calls.answer.cut_answers import CutAnswers
from gateway.core.caller import ANONYMOUS
from gateway.core.events import Begun, Delta, Event, Finish, Usage, is_content
from gateway.core.exchange import AttemptLog
from gateway.storage.recorder import CallRecording
from gateway.stream.output_parser import OutputParser
from gateway.telemetry.metrics import NumberSeries
from gateway.telemetry.record import Record

UNKNOWN_MODEL = "unknown"
"""The model name in metrics and log lines for a call whose model is not known yet."""


class CallTimeline:
    """Times and counts of one call. Only the task that runs the call changes this object."""

    __slots__ = (
        "_gauge", "_now", "_opened", "_received", "_upstream_end", "_upstream_first", "_without_content", "_written",
        "admission", "attempt_log", "bos_anomaly", "caller", "cut_answers", "delivery_notices", "endpoint",
        "in_flight", "kind", "markers", "model", "output_parser", "path", "queue_wait", "recording", "refusal",
        "render", "request_id", "stop_cuts", "stream", "template", "template_notices", "tool_parser",
        "upstream_stream", "usage",
    )  # fmt: skip

    def __init__(
        self, endpoint: str, request_id: str, received: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._now = now
        self._received = received
        self._opened: float | None = None
        """The time at which the first backend was opened. None before that time."""
        self._upstream_first: float | None = None
        self._upstream_end: float | None = None
        self._written: list[float] = []
        """The time of each write of content to the client's connection."""
        self.endpoint = endpoint
        self.request_id = request_id
        self.model = UNKNOWN_MODEL
        self.template = self.kind = self.tool_parser = self.refusal = self.path = ""
        self.caller = ANONYMOUS
        self.stream = self.upstream_stream = False
        self.attempt_log = AttemptLog()
        """The log of the call's attempts. Replaced by the log of the exchange when the exchange has been created."""
        self.in_flight: NumberSeries
        """The series of the gauge ``gateway_in_flight`` that counts this call. Set by ``begin``."""
        self._gauge: Mapping[tuple[str, ...], NumberSeries]
        """The gauge ``gateway_in_flight``."""
        self.admission: float | None = None
        self.queue_wait: float | None = None
        self.render: float | None = None
        self.recording: CallRecording | None = None
        """The recording of the call. None if the call is not recorded."""
        self.restart()

    def restart(self) -> None:
        """Set the values that describe the answer to those of a call without answer.

        Call when a call with several turns starts again with another model.
        """
        self.cut_answers = CutAnswers()
        self._without_content = self.cut_answers.without_content
        """The set ``cut_answers.without_content``, stored here to save a look-up for each event of a stream."""
        self.output_parser: OutputParser | None = None
        """The parser of the latest answer. None if all text is content."""
        self.bos_anomaly = False
        self.usage: Usage | None = None
        self.stop_cuts: list[str] = []
        self.delivery_notices: list[str] = []
        self.template_notices: tuple[str, ...] = ()
        self.markers: tuple[tuple[str, int], ...] = ()

    def begin(self, gauge: Mapping[tuple[str, ...], NumberSeries]) -> None:
        """Count the call as running, for the model ``unknown``. ``gauge``: the series of ``gateway_in_flight``."""
        self._gauge = gauge
        self.in_flight = gauge[self.endpoint, UNKNOWN_MODEL]
        self.in_flight.value += 1

    def count_for(self, model: str) -> None:
        """Count the running call for its model instead of the model ``unknown``."""
        self.model = model
        self.in_flight.value -= 1
        self.in_flight = self._gauge[self.endpoint, model]
        self.in_flight.value += 1

    def admitted(self) -> None:
        """Store the admission time. Call when the body of the client's request has been parsed and checked."""
        self.admission = self._now() - self._received

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
        count = 0
        for event in events:
            if type(event) is not Finish and ((type(event) is Delta and event.text) or is_content(event)):
                count += 1
        self._written += [self._now()] * count

    def text_forwarded(self, moments: Sequence[float]) -> None:
        """Store the times of text that was forwarded directly to the client. ``moments``: the time of each write."""
        self._written += moments

    def events_received(self, events: Sequence[Event]) -> None:
        """Read the events of a batch. Call after the batch has been cut and parsed, before the client receives it."""
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
                    self.stop_cuts.append(event.source)
            elif type(event) is Usage:
                self.usage = event
            elif type(event) is Begun:
                for notice in event.notices:
                    self.delivery_notices.append(notice)
                    self.bos_anomaly = self.bos_anomaly or notice.startswith("bos:")
            elif self._upstream_first is None:  # a ``Document``: a whole answer
                self._upstream_first = self._now()

    def notices(self) -> list[str]:
        """Return the notices of the delivery, and a notice for each answer that is empty or cut off at the context."""
        if not self.cut_answers.found:
            return self.delivery_notices
        cut = sorted(self.cut_answers.reasons(self.usage).items())
        named = [f"answer_cut: choices[{index}]={reason}" for index, reason in cut if reason != "length"]
        return self.delivery_notices + named

    @property
    def target(self) -> str:
        """The label of the target of the latest attempt. Empty before the first attempt."""
        return self.attempt_log.target

    @property
    def attempts(self) -> int:
        """The number of attempts so far."""
        return self.attempt_log.count

    @property
    def failed_attempts(self) -> tuple[str, ...]:
        """A text ``target=code`` for each attempt that failed before its answer began, in order."""
        return tuple([f"{target}={code}" for target, code in self.attempt_log.failures])

    @property
    def begun(self) -> bool:
        """True if content has been written to the client."""
        return bool(self._written)

    def elapsed(self) -> float:
        """Return the seconds since the head of the client's request was received."""
        return self._now() - self._received

    def overhead(self) -> float:
        """Return the seconds in which the call waited neither in the queue nor for the upstream. See ``elapsed``."""
        return self.elapsed_and_overhead()[1]

    def elapsed_and_overhead(self) -> tuple[float, float]:
        """Return ``elapsed`` and ``overhead`` for the same moment."""
        now = self._now()
        elapsed, opened = now - self._received, self._opened
        overhead = elapsed - (self.queue_wait or 0.0)
        if opened is not None:
            overhead -= (self._upstream_end or self._upstream_first or now) - opened
        return elapsed, overhead if overhead > 0.0 else 0.0

    def freeze(self, outcome: str, status: int, gone_phase: str = "") -> Record:
        """Return the record of the finished call."""
        opened, usage, cached = self._opened, self.usage, self.attempt_log.cache == "hit"
        if cached:  # nothing was sent to a target
            opened = None
        first, ended, written = self._upstream_first, self._upstream_end, self._written
        return Record(
            request_id=self.request_id,
            endpoint=self.endpoint,
            model=self.model,
            outcome=outcome,
            status=status,
            stream=self.stream,
            duration=self._now() - self._received,
            template=self.template,
            kind=self.kind,
            target=self.attempt_log.target,
            upstream_stream=self.upstream_stream,
            attempts=self.attempt_log.count,
            failed_attempts=self.failed_attempts if self.attempt_log.failures else (),
            refusal=self.refusal,
            key=self.caller.key,
            cache=self.attempt_log.cache,
            misspelled=tuple([one for one in self.delivery_notices if "(did you mean" in one]),
            path=self.path,
            admission=self.admission,
            queue_wait=self.queue_wait,
            render=self.render,
            upstream_first=None if opened is None or first is None else first - opened,
            upstream=None if opened is None or ended is None else ended - opened,
            first_token=written[0] - self._received if written else None,
            gaps=tuple(map(sub, written[1:], written)),
            prompt_tokens=usage.prompt if usage is not None else None,
            completion_tokens=usage.completion if usage is not None else None,
            usage_source="" if usage is None else "cache" if cached else usage.source,
            stop_cuts=tuple(self.stop_cuts),
            answers_cut=tuple(self.cut_answers.reasons(usage).values()) if self.cut_answers.found else (),
            template_notices=self.template_notices,
            markers=self.markers,
            bos_anomaly=self.bos_anomaly,
            gone_phase=gone_phase,
            tool_parser=self.tool_parser,
            tool_parse_failures=0 if self.output_parser is None else self.output_parser.failures,
        )
