"""The ``x-gateway-*`` headers of an answer."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

from gateway.calls.preparation.prepare import Prepared
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline

MAX_HEADER = 1024
"""The maximum number of characters of a header value that contains names or notices."""
CALL_HEADERS = (
    b"%b%b\r\nx-gateway-target: %b\r\nx-gateway-attempts: %d\r\nx-gateway-overhead-ms: %.3f\r\n"
    b"openai-processing-ms: %d\r\n"
)
"""The headers of a call to a backend. An answer of ``/v1/render`` contains no target, attempts or times."""


def provenance(route: Route, prepared: Prepared, timeline: CallTimeline | None = None) -> bytes:
    """Return the ``x-gateway-*`` headers of an answer (``docs/http.md``)."""
    spec, template, prompt = route.spec, route.template.spec, prepared.prompt
    exchange = prepared.exchange
    if prompt is not None and exchange.prompts and not exchange.prompt_is_list and type(exchange.prompts[0]) is str:
        # One string: the hash of ``prompt_sha256``, computed faster.
        digest, hashed = template.digest, sha256(prompt.text.encode("utf-8", "surrogatepass")).hexdigest()
    else:
        digest, hashed = template.digest if prompt is not None else "", prepared.prompt_sha256
    route_headers = _route_headers(spec.name, template.name, digest, spec.policy.name)
    notices = [str(notice) for notice in prepared.notices] if prepared.notices else []
    if timeline is None:
        rows = b"%b%b\r\n" % (route_headers, hashed.encode("ascii"))
    else:
        elapsed, overhead = timeline.elapsed_and_overhead()
        rows = CALL_HEADERS % (
            route_headers, hashed.encode("ascii"), _target_value(timeline.target), timeline.attempts, overhead * 1000,
            round(elapsed * 1000),
        )  # fmt: skip
        notices += timeline.notices()
    if timeline is not None and (cache := timeline.attempt_log.cache):
        age = f"; age={int(timeline.attempt_log.cache_age)}" if cache == "hit" else ""
        rows += f"x-gateway-cache: {cache}{age}\r\n".encode("ascii")
    if prepared.prompt_id:
        rows += b"x-gateway-dataset-prompt: %b\r\n" % header_value(prepared.prompt_id).encode("ascii")
    if notices:
        rows += b"x-gateway-notice: %b\r\n" % header_value("; ".join(notices)).encode("ascii")
    return rows


@lru_cache(maxsize=1024)
def _route_headers(model: str, template: str, digest: str, policy: str) -> bytes:
    """Return the headers that all calls of a route share, then the name of the hash header.

    ``digest``: the digest of the template; empty if no template was used.
    """
    rows = {
        "x-gateway-model": model,
        "x-gateway-template": f"{template}@sha256:{digest}" if digest else "none",
        "x-gateway-policy": policy,
    }
    headers = "".join(f"{name}: {header_value(value)}\r\n" for name, value in rows.items())
    return headers.encode("ascii") + b"x-gateway-prompt-sha256: "


@lru_cache(maxsize=1024)
def _target_value(target: str) -> bytes:
    """Return the label of a target as a header value. The result is cached, because there are few targets."""
    return header_value(target).encode("ascii")


def header_value(value: str) -> str:
    """Return a value as one line of ASCII, of at most ``MAX_HEADER`` characters."""
    if len(value) > MAX_HEADER:
        value = value[: MAX_HEADER - 3] + "..."
    return value.replace("\r", " ").replace("\n", " ").encode("ascii", "replace").decode("ascii")
