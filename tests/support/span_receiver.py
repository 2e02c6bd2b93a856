"""A real receiver of spans on loopback: OTLP over HTTP, as a collector has it."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SERVER, CLIENT = 2, 3
"""The kinds of spans, as numbers of the protocol."""
ERROR = 2
"""The status of a failed span."""


@dataclass(frozen=True)
class ReceivedSpan:
    """One span, with ids in hexadecimal digits."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    """Empty: the span has no parent."""
    start: int
    end: int
    """Both in nanoseconds since the epoch."""
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    schema_url: str


class SpanReceiver:
    """The receiver in threads; a context manager. Its answers wait while ``hanging`` is set."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.hanging = False
        self.release = threading.Event()
        self.requests = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.requests += 1
                if receiver.hanging:
                    receiver.release.wait()
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                receiver.bodies.append(body)
                receiver.spans += spans_of(body)
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The address for spans."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"

    def __enter__(self) -> SpanReceiver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


def spans_of(body: bytes) -> list[ReceivedSpan]:
    """The spans of one request."""
    request = ExportTraceServiceRequest.FromString(body)
    return [
        ReceivedSpan(
            name=span.name,
            kind=span.kind,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            start=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            failed=span.status.code == ERROR,
            attributes=_values(span.attributes),
            resource=_values(of_resource.resource.attributes),
            schema_url=of_scope.schema_url,
        )
        for of_resource in request.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)
