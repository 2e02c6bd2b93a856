"""The paths that accept the body of a chat request, and return the prompt without calling the model.

``/v1/render`` explains the prompt. ``/v1/chat/completions/render`` answers as vLLM's render server does: with the body
of a request for ``/inference/v1/generate``, which has the prompt as token ids.
"""

from __future__ import annotations

from typing import Any

from gateway.calls.explain import rendering
from gateway.calls.prepare import Prepared, prepare
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.calls.tokenizing import tokenize_prepared
from gateway.core.call import Call
from gateway.core.errors import UnsupportedParameter
from gateway.edge.http_request import HttpRequest
from gateway.edge.provenance import provenance


async def respond(request: HttpRequest, call: Call, route: Route, _timeline: CallTimeline) -> None:
    """Send the prompt that the model would receive, and how the prompt was made."""
    prepared, body = await rendering(route, call)
    request.commit()
    request.reply_json(200, body, provenance(route, prepared))


NOT_SAMPLING = frozenset({
    "add_generation_prompt", "add_special_tokens", "chat_template_kwargs", "continue_final_message", "echo",
    "max_completion_tokens", "parallel_tool_calls", "return_token_ids", "tool_choice", "tools", "top_logprobs", "user",
})  # fmt: skip
"""Request parameters that are not sampling parameters of vLLM, or that have another name in vLLM."""


async def respond_tokens(request: HttpRequest, call: Call, route: Route, _timeline: CallTimeline) -> None:
    """Send the token ids of the prompt and the sampling parameters."""
    if call.turns is not None:
        raise UnsupportedParameter("a request with turns has several prompts; send it to /v1/render",
                                   param="gateway.turns")  # fmt: skip
    if call.unknown.get("return_token_offsets"):
        raise UnsupportedParameter("token offsets are not supported; leave the field out", param="return_token_offsets")
    prepared = await prepare(route, call)
    tokens = await tokenize_prepared(route, prepared)
    body = {
        "request_id": f"chatcmpl-{call.request_id.removeprefix('req_')}",
        "token_ids": tokens.ids,
        "token_offsets": None,
        "features": None,
        "sampling_params": _sampling_params(prepared),
        "model": call.model,
        "stream": call.stream,
        "stream_options": ({**call.stream_options, "include_usage": call.include_usage} if call.stream else None),
        "cache_salt": None,
        "priority": 0,
        "kv_transfer_params": None,
    }
    request.commit()
    request.reply_json(200, body, provenance(route, prepared))


def _sampling_params(prepared: Prepared) -> dict[str, Any]:
    """Return the sampling parameters with vLLM's names, without parameters that are not set."""
    exchange = prepared.exchange
    params = {name: value for name, value in exchange.params.items() if name not in NOT_SAMPLING}
    if (limit := exchange.params.get("max_completion_tokens")) is not None:
        params["max_tokens"] = limit
    if prepared.top_logprobs is not None:
        params["logprobs"] = prepared.top_logprobs
    elif params.get("logprobs") is True:
        params["logprobs"] = exchange.params.get("top_logprobs") or 0
    if exchange.n > 1:
        params["n"] = exchange.n
    if exchange.stops:
        params["stop"] = list(exchange.stops)
    ids = [*exchange.stop_token_ids, *params.get("stop_token_ids", ())]
    return {**params, **({"stop_token_ids": ids} if ids else {})}
