"""Sends ended spans to their receiver in a thread of the SDK."""

from __future__ import annotations

import logging

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Tracer

from gateway.calls.tracing.conventions import SCHEMA_URL
from gateway.config.snapshot import TracingSpec
from metatemplate.version import VERSION

MAX_WAITING, MAX_SENT = 4096, 2048
"""The maximum number of spans that wait, and of those in one request. The oldest ones above it are dropped."""
PAUSE, TIMEOUT = 1.0, 2.0
"""Seconds between two requests, and the maximum time of one with its repetitions: at its end, the process waits for
the running request, and for those of the waiting spans."""
LOG_PAUSE = 60.0
"""Seconds until the log may have the same line about requests that fail."""


def open_tracer(spec: TracingSpec) -> Tracer:
    """Return a tracer whose spans are sent to the address of a configuration. The last ones are sent at exit."""
    resource = Resource.create({"service.name": spec.service, "service.version": VERSION})
    provider = TracerProvider(ParentBased(TraceIdRatioBased(spec.sample)), resource)
    exporter = OTLPSpanExporter(endpoint=spec.otlp, timeout=TIMEOUT)
    provider.add_span_processor(BatchSpanProcessor(exporter, MAX_WAITING, PAUSE * 1000, MAX_SENT))
    logging.getLogger(OTLPSpanExporter.__module__).addFilter(RareLines())
    return provider.get_tracer("meta-gateway", VERSION, schema_url=SCHEMA_URL)


class RareLines(logging.Filter):
    """Lets a line pass once in ``LOG_PAUSE`` seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See ``logging.Filter``."""
        if passes := record.created >= self._next.get(record.msg, 0.0):
            self._next[record.msg] = record.created + LOG_PAUSE
        return passes
