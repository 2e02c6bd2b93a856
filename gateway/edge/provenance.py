"""The ``x-gateway-*`` headers of an answer, and the explanation that a request may ask for."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from hashlib import sha256
from typing import Any

from gateway.backend.tokenizer import token_ids
from gateway.calls.prepare import Prepared, prepare
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Call
from gateway.core.dialogue import Dialogue
from gateway.core.prompt import DeferredSegments, Segment

MAX_HEADER = 1024
"""Characters of a header value that is made of names and notices."""
CALL_HEADERS = (
    b"%b%b\r\nx-gateway-target: %b\r\nx-gateway-attempts: %d\r\nx-gateway-overhead-ms: %.3f\r\n"
    b"openai-processing-ms: %d\r\n"
)
"""The headers of a call that was given to a backend, or could have been."""


def provenance(route: Route, prepared: Prepared, timeline: CallTimeline | None = None) -> bytes:
    """The ``x-gateway-*`` headers (``docs/http.md``)."""
    spec, template, prompt = route.spec, route.template.spec, prepared.prompt
    if prompt is not None and prepared.exchange.prompts:  # one text: as ``prompt_sha256``, without its branches
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
        notices += timeline.delivery_notices
    if notices:
        rows += b"x-gateway-notice: %b\r\n" % header_value("; ".join(notices)).encode("ascii")
    return rows


@lru_cache(maxsize=1024)
def _route_headers(model: str, template: str, digest: str, policy: str) -> bytes:
    """The rows that are the same for every call of a route, up to the prompt's hash; no ``digest``: no template."""
    rows = {
        "x-gateway-model": model,
        "x-gateway-template": f"{template}@sha256:{digest}" if digest else "none",
        "x-gateway-policy": policy,
    }
    headers = "".join(f"{name}: {header_value(value)}\r\n" for name, value in rows.items())
    return headers.encode("ascii") + b"x-gateway-prompt-sha256: "


@lru_cache(maxsize=1024)
def _target_value(target: str) -> bytes:
    """The label of a target as a header value; there are few."""
    return header_value(target).encode("ascii")


def explanation(
    route: Route,
    prepared: Prepared,
    timeline: CallTimeline | None = None,
    *,
    segments: tuple[Segment, ...] | None = None,
    token_ids: list[int] | None = None,
) -> dict[str, Any]:
    """The same as JSON: the prompt, its stops, the effective parameters, every rewrite, hashes.

    ``timeline``: of a call that a target has answered; None: the call was only rendered.
    """
    exchange, prompt = prepared.exchange, prepared.prompt
    body: dict[str, Any] = {
        "model": route.spec.name,
        "template": route.template_id if prompt is not None else None,
        "policy": route.spec.policy.name,
        "prompt": _prompt(prepared),
        "messages": list(exchange.messages) or None,
        "stop": list(exchange.stops),
        "stop_token_ids": list(exchange.stop_token_ids),
        "bos": exchange.bos,
        "params": {key: value for key, value in exchange.params.items() if key != "input"},
        "n": exchange.n,
        "notices": [str(notice) for notice in prepared.notices],
        "prompt_sha256": prepared.prompt_sha256,
    }
    if timeline is not None:
        body["target"] = timeline.target
        body["attempts"] = timeline.attempts
        body["overhead_ms"] = round(timeline.overhead() * 1000, 3)
        body["notices"] += timeline.delivery_notices
    if segments is not None:
        body["segments"] = [
            {"text": s.text, "role": s.role, "origin": s.origin, "scaffold": s.scaffold} for s in segments
        ]
        if token_ids is not None:
            body["token_ids"] = token_ids
    return body


async def rendering(route: Route, call: Call) -> tuple[Prepared, dict[str, Any]]:
    """The body of ``/v1/render`` and ``gateway render --json``: the explanation of a chat request without an answer."""
    prepared = await prepare(route, call)
    prompt, segments, ids = prepared.prompt, None, None
    if prompt is not None:
        # Finding the origin of each segment may take further renderings of a long conversation.
        ready = not isinstance(prompt.source, DeferredSegments | Dialogue)
        segments = prompt.segments if ready else await asyncio.to_thread(lambda: prompt.segments)
    if prompt is not None and segments is not None and route.tokens is not None:
        ids = await token_ids(route.tokens, prompt.text, special=prompt.metadata.bos != "text")
    return prepared, explanation(route, prepared, segments=segments, token_ids=ids)


def _prompt(prepared: Prepared) -> Any:
    prompts = [list(prompt) if isinstance(prompt, tuple) else prompt for prompt in prepared.exchange.prompts]
    return prompts[0] if len(prompts) == 1 else (prompts or None)


def header_value(value: str) -> str:
    """A value as one line of ASCII, of at most ``MAX_HEADER`` characters."""
    if len(value) > MAX_HEADER:
        value = value[: MAX_HEADER - 3] + "..."
    return value.replace("\r", " ").replace("\n", " ").encode("ascii", "replace").decode("ascii")
