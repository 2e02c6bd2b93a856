"""The ``x-gateway-*`` headers of an answer."""

from __future__ import annotations

from gateway.calls.preparation.prepare import Prepared
from gateway.calls.route import Route, header_value
from gateway.calls.timeline import CallTimeline

CALL_HEADERS = (
    b"%b%b\r\nx-gateway-target: %b\r\nx-gateway-attempts: %d\r\nx-gateway-overhead-ms: %.3f\r\n"
    b"openai-processing-ms: %.0f\r\n"
)
"""The headers of a call to a backend. An answer of ``/v1/render`` contains no target, attempts or times."""


def provenance(route: Route, prepared: Prepared, timeline: CallTimeline | None = None) -> bytes:
    """Return the ``x-gateway-*`` headers of an answer (``docs/http.md``)."""
    headers = route.raw_headers if prepared.prompt is None else route.headers
    prompt_hash = prepared.prompt_sha256.encode("ascii")
    notices = [str(notice) for notice in prepared.notices]
    if timeline is None:
        rows = b"%b%b\r\n" % (headers, prompt_hash)
    else:
        elapsed, overhead = timeline.elapsed_and_overhead()
        attempts = timeline.attempt_log
        rows = CALL_HEADERS % (
            headers, prompt_hash, header_value(attempts.target), attempts.count, overhead * 1000, elapsed * 1000
        )  # fmt: skip
        notices += timeline.notices()
        if attempts.cache:
            age = f"; age={int(attempts.cache_age)}" if attempts.cache == "hit" else ""
            rows += f"x-gateway-cache: {attempts.cache}{age}\r\n".encode("ascii")
    if prepared.prompt_id:
        rows += b"x-gateway-dataset-prompt: %b\r\n" % header_value(prepared.prompt_id)
    if notices:
        rows += b"x-gateway-notice: %b\r\n" % header_value("; ".join(notices))
    return rows
