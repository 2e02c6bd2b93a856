"""``/api/chat`` and ``/api/show`` as Ollama's API reference describes them; streams are lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support.providers.scenes import COMPLETION_TOKENS, PROMPT_TOKENS, REASON, Reply, Request, Scene, scene, told

FINISH = {"stop": "stop", "length": "length", "tools": "stop"}

ERRORS: Mapping[int, str] = {
    400: REASON,
    401: "unauthorized",
    403: "this model requires a subscription",
    404: "model 'tiny' not found",
    429: "too many concurrent requests",
    500: "llama runner process has terminated: exit status 2",
    503: "server busy, please try again. maximum pending requests exceeded",
    529: "overloaded",
}


def reply(request: Request) -> Reply:
    """The reply to one request."""
    body = request.body
    if request.path == "api/show":
        return Reply({"details": {"family": "tiny"}, "model_info": {}, "capabilities": ["completion", "tools"]})
    asked = _scene(body)
    if asked.status != 200:
        message = "the input length exceeds the context length" if asked.name == "context" else ERRORS[asked.status]
        headers = (("retry-after", "7"),) if asked.status == 429 else ()
        return Reply({"error": message}, asked.status, headers=headers)
    if body.get("stream", True):
        messages = [{"role": "assistant", "content": piece} for piece in asked.pieces] or [_message(asked)]
        lines = [json.dumps(_line(message, asked, done=False)) + "\n" for message in messages]
        lines.append(json.dumps(_line({"role": "assistant", "content": ""}, asked, done=True)) + "\n")
        return Reply(told(lines, asked.end), content_type="application/x-ndjson", end=asked.end)
    return Reply(_line(_message(asked), asked, done=True), end=asked.end)


def _scene(body: Mapping[str, Any]) -> Scene:
    messages, options = body["messages"], body.get("options") or {}
    results = [message["content"] for message in messages if message["role"] == "tool"]
    return scene(
        [message["content"] for message in messages if message["role"] == "user"][-1],
        tools=bool(body.get("tools")),
        result=results[-1] if results else "",
        stops=options.get("stop") or (),
        limit=options.get("num_predict"),
    )


def _message(asked: Scene) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(asked.pieces)}
    if asked.calls:
        message["tool_calls"] = [{"function": {"name": "weather", "arguments": {"city": city}}} for city in asked.calls]
    return message


def _line(message: Mapping[str, Any], asked: Scene, *, done: bool) -> dict[str, Any]:
    line = {"model": "tiny", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done}
    if not done:
        return line
    counts = {
        "prompt_eval_count": PROMPT_TOKENS,
        "eval_count": COMPLETION_TOKENS,
        "total_duration": 1,
        "load_duration": 1,
        "prompt_eval_duration": 1,
        "eval_duration": 1,
    }
    return {**line, "done_reason": FINISH[asked.finish], **counts}
