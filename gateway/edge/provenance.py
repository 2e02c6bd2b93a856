"""What did the model really see? The headers of every answer, and the explanation on request."""

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
from gateway.edge.replies import header_value

KNOWN = (
    b"%b%b\r\nx-gateway-target: %b\r\nx-gateway-attempts: %d\r\nx-gateway-overhead-ms: %.3f\r\n"
    b"openai-processing-ms: %d\r\n"
)
"""What is told of a call that has a target, or could have had one."""


def provenance(route: Route, prepared: Prepared, progress: CallTimeline | None = None) -> bytes:
    """The ``x-gateway-*`` headers (``docs/spec/wire.md`` 5)."""
    spec, template, prompt = route.spec, route.template.spec, prepared.prompt
    if prompt is not None and prepared.exchange.prompts:  # a text: what ``prompt_sha256`` would find
        digest, hashed = template.digest, sha256(prompt.text.encode("utf-8", "surrogatepass")).hexdigest()
    else:
        digest, hashed = template.digest if prompt is not None else "", prepared.prompt_sha256
    of_route = _of_route(spec.name, template.name, digest, spec.policy.name)
    notices = [str(notice) for notice in prepared.notices] if prepared.notices else []
    if progress is None:
        rows = b"%b%b\r\n" % (of_route, hashed.encode("ascii"))
    else:
        elapsed, overhead = progress.spent()
        rows = KNOWN % (
            of_route, hashed.encode("ascii"), _clean(progress.target), progress.attempts, overhead * 1000,
            round(elapsed * 1000),
        )  # fmt: skip
        notices += progress.delivery_notices
    if notices:
        rows += b"x-gateway-notice: %b\r\n" % header_value("; ".join(notices)).encode("ascii")
    return rows


@lru_cache(maxsize=1024)
def _of_route(model: str, template: str, digest: str, policy: str) -> bytes:
    """What is the same for every call of a route, up to the prompt's hash; no ``digest``: never templated."""
    rows = {
        "x-gateway-model": model,
        "x-gateway-template": f"{template}@sha256:{digest}" if digest else "none",
        "x-gateway-policy": policy,
    }
    known = "".join(f"{name}: {header_value(value)}\r\n" for name, value in rows.items())
    return known.encode("ascii") + b"x-gateway-prompt-sha256: "


@lru_cache(maxsize=1024)
def _clean(target: str) -> bytes:
    """The name of a target, of which there are few."""
    return header_value(target).encode("ascii")


def explanation(
    route: Route,
    prepared: Prepared,
    progress: CallTimeline | None = None,
    *,
    segments: tuple[Segment, ...] | None = None,
    token_ids: list[int] | None = None,
) -> dict[str, Any]:
    """The same as a body: the prompt, its stops, the effective parameters, every rewrite, hashes.

    ``progress``: of a call that a target has answered; without one, nobody was asked.
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
    if progress is not None:
        body["target"] = progress.target
        body["attempts"] = progress.attempts
        body["overhead_ms"] = round(progress.overhead() * 1000, 3)
        body["notices"] += progress.delivery_notices
    if segments is not None:
        body["segments"] = [
            {"text": s.text, "role": s.role, "origin": s.origin, "scaffold": s.scaffold} for s in segments
        ]
        if token_ids is not None:
            body["token_ids"] = token_ids
    return body


async def rendering(route: Route, call: Call) -> tuple[Prepared, dict[str, Any]]:
    """What ``/v1/render`` and ``gateway render --json`` tell of a chat request: everything but an answer."""
    prepared = await prepare(route, call)
    prompt, segments, ids = prepared.prompt, None, None
    if prompt is not None:
        # Where the words come from may take further renderings to find, of a long conversation.
        at_hand = not isinstance(prompt.source, DeferredSegments | Dialogue)
        segments = prompt.segments if at_hand else await asyncio.to_thread(lambda: prompt.segments)
    if prompt is not None and segments is not None and route.tokens is not None:
        ids = await token_ids(route.tokens, prompt.text, special=prompt.bos != "text")
    return prepared, explanation(route, prepared, segments=segments, token_ids=ids)


def _prompt(prepared: Prepared) -> Any:
    prompts = [list(prompt) if isinstance(prompt, tuple) else prompt for prompt in prepared.exchange.prompts]
    return prompts[0] if len(prompts) == 1 else (prompts or None)
