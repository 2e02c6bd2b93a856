"""Makes a span for each call, and a child span for each attempt at a target."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.calls.timeline import CallTimeline
from gateway.calls.tracing.conventions import of_attempt, of_call
from gateway.core.errors import GatewayError
from metatemplate.values.events import Event, Finish

if TYPE_CHECKING:
    from gateway.config.snapshot import TargetSpec
    from gateway.core.exchange import Backend, Events, Exchange

HEADERS = TraceContextTextMapPropagator()
NAMED_BY = ("gen_ai.operation.name", "gen_ai.request.model")
"""The attributes whose values are the name of a span."""


@dataclass(frozen=True, slots=True)
class Tracing:
    """Makes the spans of one configuration."""

    tracer: Tracer

    def timeline(self, endpoint: str, request_id: str, received: float, headers: Mapping[bytes, bytes]) -> CallTimeline:
        """Return the record of a call that has a span. For the parameters see ``CallTimeline``."""
        return TracedTimeline(self, endpoint, request_id, received, headers)

    def around(self, backend: Backend, target: TargetSpec) -> Backend:
        """Return a backend whose exchanges are attempts with a span."""
        return TracedTarget(self, backend, target)

    def start(
        self, kind: SpanKind, trace: Mapping[str, str], start: int | None = None
    ) -> tuple[Span, Mapping[str, str]]:
        """Start a span. Return the span, and the trace for what is below the span.

        ``trace``: that of the parent, or empty. ``start``: nanoseconds since the epoch. None: now.
        """
        span, below = self.tracer.start_span("", HEADERS.extract(trace), kind, start_time=start), dict[str, str]()
        HEADERS.inject(below, set_span_in_context(span))
        return span, below or trace


def end(span: Span, attributes: Callable[[], Mapping[str, Any]], *, failed: bool, at: int | None = None) -> None:
    """End a span. ``attributes``: called for a sampled span; empty ones are left out. ``at``: see ``Span.end``."""
    if span.is_recording():
        found = {name: value for name, value in attributes().items() if value not in (None, "", ())}
        span.update_name(" ".join([found[name] for name in NAMED_BY if name in found]))
        span.set_attributes(found)
        if failed:
            span.set_status(StatusCode.ERROR)
    span.end(at)


class TracedTimeline(CallTimeline):
    """The record of a running call that has a span."""

    __slots__ = ("_span", "_started", "finish_reasons")

    def __init__(
        self, tracing: Tracing, endpoint: str, request_id: str, received: float, headers: Mapping[bytes, bytes]
    ) -> None:
        """Start the span, as a child of the client's."""
        super().__init__(endpoint, request_id, received, headers)
        self._started = time.time_ns() - int((self._now() - self._received) * 1e9)
        self._span, self.trace = tracing.start(SpanKind.SERVER, self.trace, self._started)

    def _start_answer(self) -> None:
        super()._start_answer()
        self.finish_reasons: dict[int, str] = {}
        """The index of each choice that has ended → its finish reason."""

    def events_received(self, events: Sequence[Event]) -> None:
        """Store the finish reasons. See ``CallTimeline``."""
        super().events_received(events)
        self.finish_reasons.update({event.index: event.reason for event in events if type(event) is Finish})

    def end(self, outcome: str, status: int, gone_phase: str = "") -> None:
        """End the span. See ``CallTimeline``."""
        super().end(outcome, status, gone_phase)
        at = self._started + int(self.duration * 1e9)
        failed = outcome != "ok" and (status >= 500 or status == 200)  # before or after the status was sent
        end(self._span, partial(of_call, self, self.finish_reasons), failed=failed, at=at)


@dataclass(frozen=True, slots=True)
class TracedTarget:
    """A backend around one target, which makes a span for each exchange."""

    tracing: Tracing
    inner: Backend
    target: TargetSpec

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        """Open the exchange with a trace whose parent is the span of the attempt. See ``Backend.open``."""
        caller, error = exchange.caller, None
        span, trace = self.tracing.start(SpanKind.CLIENT, caller.trace)
        try:
            async with self.inner.open(replace(exchange, caller=replace(caller, trace=trace))) as events:
                yield events
        except BaseException as raised:
            error = raised
            raise
        finally:
            end(span, partial(of_attempt, self.target, exchange, error), failed=isinstance(error, GatewayError))
