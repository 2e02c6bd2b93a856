"""What did the model really see? The headers of every answer, and the explanation on request."""

from __future__ import annotations

from typing import Any

from gateway.backend.tokens import token_ids
from gateway.core.call import Call
from gateway.pipeline import Prepared, Route, prepare
from gateway.progress import Progress


def provenance(route: Route, prepared: Prepared, progress: Progress | None = None) -> list[tuple[str, str]]:
    """The ``x-gateway-*`` headers (design 5)."""
    rows = [
        ("x-gateway-model", route.spec.name),
        ("x-gateway-template", route.template_id if prepared.prompt is not None else "none"),
        ("x-gateway-prompt-sha256", prepared.prompt_sha256),
        ("x-gateway-policy", route.spec.policy.name),
    ]
    notices = [str(notice) for notice in prepared.notices]
    if progress is not None:
        rows += [
            ("x-gateway-target", progress.target),
            ("x-gateway-attempts", str(progress.attempts)),
            ("x-gateway-overhead-ms", f"{progress.overhead() * 1000:.3f}"),
            ("openai-processing-ms", str(round(progress.elapsed() * 1000))),
        ]
        notices += progress.delivery_notices
    if notices:
        rows.append(("x-gateway-notice", "; ".join(notices)))
    return rows


def explanation(
    route: Route,
    prepared: Prepared,
    progress: Progress | None = None,
    *,
    segments: bool = False,
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
    if segments and prompt is not None and prompt.segments is not None:
        body["segments"] = [
            {"text": s.text, "role": s.role, "origin": s.origin, "scaffold": s.scaffold} for s in prompt.segments
        ]
        if token_ids is not None:
            body["token_ids"] = token_ids
    return body


async def rendering(route: Route, call: Call) -> tuple[Prepared, dict[str, Any]]:
    """What ``/v1/render`` and ``gateway render --json`` tell of a chat request: everything but an answer."""
    prepared = await prepare(route, call)
    prompt, ids = prepared.prompt, None
    if prompt is not None and prompt.segments is not None and route.tokens is not None:
        ids = await token_ids(route.tokens, prompt.text, special=prompt.bos != "text")
    return prepared, explanation(route, prepared, segments=True, token_ids=ids)


def _prompt(prepared: Prepared) -> Any:
    prompts = [list(prompt) if isinstance(prompt, tuple) else prompt for prompt in prepared.exchange.prompts]
    return prompts[0] if len(prompts) == 1 else (prompts or None)
