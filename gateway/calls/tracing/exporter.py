"""Sends ended spans to their receiver in a thread.

The batch processor of the SDK does not count the spans that it drops, and waits up to 30 seconds at its end.
"""

from __future__ import annotations

import logging
from collections import deque
from threading import Event as ThreadEvent
from threading import Thread

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Tracer

from gateway.calls.tracing.conventions import SCHEMA_URL
from gateway.config.snapshot import TracingSpec
from metatemplate.version import VERSION

LOG = logging.getLogger("gateway.tracing")

MAX_WAITING, MAX_SENT = 4096, 512
"""The maximum number of spans that wait, and of those in one request. Further spans are dropped."""
PAUSE, PAUSE_AFTER_FAILURE = 1.0, 10.0
"""Seconds between two requests, and after a request that failed."""
END_SECONDS = 1.0
"""The maximum time in seconds for the last spans, when the process ends."""


def open_tracer(spec: TracingSpec) -> Tracer:
    """Return a tracer whose spans are sent to the address of a configuration. The last ones are sent at exit."""
    resource = Resource.create({"service.name": spec.service, "service.version": VERSION})
    provider = TracerProvider(ParentBased(TraceIdRatioBased(spec.sample)), resource)
    provider.add_span_processor(SpanQueue(OTLPSpanExporter(endpoint=spec.otlp)))
    return provider.get_tracer("meta-gateway", VERSION, schema_url=SCHEMA_URL)


class SpanQueue(SpanProcessor):
    """The ended spans that wait to be sent. A call never waits for the receiver."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter, self._waiting, self._ending = exporter, deque[ReadableSpan](), ThreadEvent()
        self._dropped = self._failed = self._logged = 0
        """The spans that found the queue full, those in requests that failed, and the sum that was logged last."""
        self._thread = Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, or drop it. Called in the thread that serves calls."""
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(span)
        else:
            self._dropped += 1

    def shutdown(self) -> None:
        """Send the waiting spans, for at most ``END_SECONDS``."""
        self._ending.set()
        self._thread.join(END_SECONDS)
        self._log_lost(len(self._waiting))
        self._exporter.shutdown()

    def _run(self) -> None:
        pause = PAUSE
        while not self._ending.wait(pause):
            pause = PAUSE if self._send() else PAUSE_AFTER_FAILURE
        self._send()

    def _send(self) -> bool:
        """Send the waiting spans. Return False, and keep the rest, if a request failed."""
        while self._waiting:
            spans = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_SENT))]
            self._failed += len(spans)  # until the receiver has accepted them
            if self._exporter.export(spans) is not SpanExportResult.SUCCESS:
                break
            self._failed -= len(spans)
        self._log_lost()
        return not self._waiting

    def _log_lost(self, unsent: int = 0) -> None:
        lost = self._dropped + self._failed + unsent
        if lost > self._logged:
            LOG.warning("spans were lost: %d, and %d since the start", lost - self._logged, lost)
            self._logged = lost
