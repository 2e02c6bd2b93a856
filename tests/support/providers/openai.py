"""Chat completions as OpenAI's API reference describes them; Azure OpenAI's and vLLM's differ in their addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.providers.scenes import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    REASON,
    Reply,
    Request,
    Scene,
    scene,
    sse,
    told,
)

FINISH = {"stop": "stop", "length": "length", "tools": "tool_calls"}

ERRORS: Mapping[int, tuple[str, str, str | None]] = {  # status: (type, message, code)
    400: ("invalid_request_error", REASON, None),
    401: ("invalid_request_error", "Incorrect API key provided: sk-up******ret.", "invalid_api_key"),
    403: ("invalid_request_error", "You are not allowed to use this model", None),
    404: ("invalid_request_error", "The model `tiny` does not exist", "model_not_found"),
    429: ("requests", "Rate limit reached for requests", "rate_limit_exceeded"),
    500: ("server_error", "The server had an error while processing your request", None),
    503: ("server_error", "The engine is currently overloaded", None),
    529: ("server_error", "Overloaded", None),
}

NO_TEMPERATURE = (
    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is supported."
)


def reply(request: Request) -> Reply:
    """The reply to one request."""
    body = request.body
    asked = _scene(body)
    if asked.status != 200:
        return _error(asked)
    if asked.name == "default" and body.get("temperature", 1) != 1:
        error = {
            "message": NO_TEMPERATURE,
            "type": "invalid_request_error",
            "param": "temperature",
            "code": "unsupported_value",
        }
        return Reply({"error": error}, 400)
    if body.get("stream"):
        chunks = [sse(chunk) for chunk in _chunks(body, asked)] + ["data: [DONE]\n\n"]
        return Reply(told(chunks, asked.end), content_type="text/event-stream", end=asked.end)
    choices = [_choice(body, asked, index) for index in range(body.get("n") or 1)]
    return Reply(_envelope(body, "chat.completion", choices, usage=_usage()), end=asked.end)


def _scene(body: Mapping[str, Any]) -> Scene:
    messages = body["messages"]
    last = [message for message in messages if message["role"] == "user"][-1]["content"]
    text = last if isinstance(last, str) else next(part["text"] for part in last if part["type"] == "text")
    results = [message["content"] for message in messages if message["role"] == "tool"]
    stops = body.get("stop") or ()
    return scene(
        text,
        tools=bool(body.get("tools")),
        result=results[-1] if results else "",
        stops=[stops] if isinstance(stops, str) else stops,
        limit=body.get("max_completion_tokens") or body.get("max_tokens"),
    )


def _error(asked: Scene) -> Reply:
    if asked.name == "context":
        message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
        error = {
            "message": message,
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
        return Reply({"error": error}, 400)
    kind, message, code = ERRORS[asked.status]
    headers = (("retry-after", "7"),) if asked.status == 429 else ()
    return Reply(
        {"error": {"message": message, "type": kind, "param": None, "code": code}}, asked.status, headers=headers
    )


def _choice(body: Mapping[str, Any], asked: Scene, index: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(asked.pieces) or None, "refusal": None}
    if asked.calls:
        message["tool_calls"] = [_call(at, city) for at, city in enumerate(asked.calls)]
    logprobs = _logprobs(asked.pieces) if body.get("logprobs") else None
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": FINISH[asked.finish]}


def _chunks(body: Mapping[str, Any], asked: Scene) -> list[dict[str, Any]]:
    chunks = []
    for index in range(body.get("n") or 1):
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "" if asked.pieces else None}]
        deltas += [{"content": piece} for piece in asked.pieces]
        for at, city in enumerate(asked.calls):
            call = _call(at, city)
            arguments = call["function"]["arguments"]
            call["function"]["arguments"] = ""
            deltas.append({"tool_calls": [{"index": at, **call}]})
            for part in (arguments[:5], arguments[5:]):
                deltas.append({"tool_calls": [{"index": at, "function": {"arguments": part}}]})
        for delta in deltas:
            scores = _logprobs((delta["content"],)) if body.get("logprobs") and delta.get("content") else None
            chunks.append([{"index": index, "delta": delta, "logprobs": scores, "finish_reason": None}])
        chunks.append([{"index": index, "delta": {}, "logprobs": None, "finish_reason": FINISH[asked.finish]}])
    if (body.get("stream_options") or {}).get("include_usage"):
        whole = [_envelope(body, "chat.completion.chunk", choices, usage=None) for choices in chunks]
        return [*whole, _envelope(body, "chat.completion.chunk", [], usage=_usage())]
    return [_envelope(body, "chat.completion.chunk", choices) for choices in chunks]


def _call(at: int, city: str) -> dict[str, Any]:
    return {
        "id": f"call_{at}",
        "type": "function",
        "function": {"name": "weather", "arguments": f'{{"city": "{city}"}}'},
    }


def _logprobs(pieces: tuple[str, ...]) -> dict[str, Any]:
    rows = []
    for piece in pieces:
        row = {"token": piece, "logprob": -0.25, "bytes": list(piece.encode())}
        rows.append({**row, "top_logprobs": [row]})
    return {"content": rows, "refusal": None}


def _usage() -> dict[str, int]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": COMPLETION_TOKENS,
        "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
    }


def _envelope(body: Mapping[str, Any], kind: str, choices: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": kind,
        "created": 1,
        "model": body.get("model", "tiny"),
        "choices": choices,
        **more,
    }
