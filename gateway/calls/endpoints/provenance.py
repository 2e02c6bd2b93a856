"""The ``x-gateway-*`` headers of an answer."""

from __future__ import annotations

from gateway.calls.endpoints.sink import HeaderFields, HeaderValue
from gateway.calls.preparation.prepare import Prepared
from gateway.calls.route import Route, header_value
from gateway.calls.timeline import CallTimeline
from gateway.core.exchange import text_of_ids

RENDERED = (b"x-gateway-model", b"x-gateway-template", b"x-gateway-policy", b"x-gateway-prompt-sha256")
CALLED = (
    *RENDERED,
    b"x-gateway-target",
    b"x-gateway-attempts",
    b"x-gateway-overhead-ms",
    b"openai-processing-ms",
)


def provenance(route: Route, prepared: Prepared, timeline: CallTimeline | None = None) -> HeaderFields:
    """Return the ``x-gateway-*`` headers of an answer (``docs/http.md``).

    ``timeline``: None for a call without a backend, whose headers name no target, attempts or times.
    """
    names: tuple[bytes, ...] = RENDERED
    values: tuple[HeaderValue, ...] = route.raw_headers if prepared.prompt is None else route.headers
    values += (prepared.prompt_sha256.encode("ascii"),)
    notices = [*map(str, prepared.notices)]
    if timeline is not None:
        elapsed, overhead = timeline.elapsed_and_overhead()
        attempts = timeline.attempt_log
        names = CALLED
        values += (header_value(attempts.target), attempts.count, overhead * 1000, elapsed * 1000)
        notices += timeline.notices()
        if attempts.cache:
            age = f"; age={int(attempts.cache_age)}" if attempts.cache == "hit" else ""
            names += (b"x-gateway-cache",)
            values += (f"{attempts.cache}{age}".encode("ascii"),)
    if route.prompt_tokens is not None and text_of_ids(prepared.exchange) is not None:
        names += (b"x-gateway-prompt-ids",)
        values += (b"%d" % len(prepared.exchange.prompts[0]),)
    if prepared.prompt_id:
        names += (b"x-gateway-dataset-prompt",)
        values += (header_value(prepared.prompt_id),)
    if notices:
        names += (b"x-gateway-notice",)
        values += (header_value("; ".join(notices)),)
    return names, values
