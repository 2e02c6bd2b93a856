"""Messages as Anthropic's API reference describes them."""

from __future__ import annotations

import json
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

FINISH = {"stop": "end_turn", "length": "max_tokens", "tools": "tool_use"}

ERRORS: Mapping[int, tuple[str, str]] = {  # status: (type, message)
    400: ("invalid_request_error", REASON),
    401: ("authentication_error", "invalid x-api-key"),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "model: tiny"),
    429: ("rate_limit_error", "Number of requests has exceeded your rate limit"),
    500: ("api_error", "Internal server error"),
    503: ("api_error", "Service unavailable"),
    529: ("overloaded_error", "Overloaded"),
}


def reply(request: Request) -> Reply:
    """The reply to one request."""
    body = request.body
    asked = _scene(body)
    if asked.name == "late":  # an error inside a stream that has begun
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        return Reply([*_events(body, asked)[:1], sse(error, "error")], content_type="text/event-stream")
    if asked.status != 200:
        kind, message = ERRORS[asked.status]
        if asked.name == "context":
            message = "prompt is too long: 210000 tokens > 200000 maximum"
        headers = (("retry-after", "7"),) if asked.status == 429 else ()
        return Reply({"type": "error", "error": {"type": kind, "message": message}}, asked.status, headers=headers)
    if body.get("stream"):
        chunks = _events(body, asked)
        chunks = chunks[:3] if asked.end in ("cut", "break") else list(told(chunks, asked.end))
        return Reply(chunks, content_type="text/event-stream", end=asked.end)
    return Reply({**_message(body, asked), "content": _blocks(body, asked)}, end=asked.end)


def _scene(body: Mapping[str, Any]) -> Scene:
    parts = [part for message in body["messages"] for part in _parts(message["content"])]
    texts = [
        part["text"]
        for message in body["messages"]
        if message["role"] == "user"
        for part in _parts(message["content"])
        if part["type"] == "text"
    ]
    results = [part["content"] for part in parts if part["type"] == "tool_result"]
    result = results[-1] if results else ""
    return scene(
        texts[-1],
        tools=bool(body.get("tools")),
        result=result if isinstance(result, str) else result[0]["text"],
        stops=body.get("stop_sequences") or (),
        limit=body["max_tokens"],
    )


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _message(body: Mapping[str, Any], asked: Scene) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": FINISH[asked.finish],
        "stop_sequence": None,
        "usage": {"input_tokens": PROMPT_TOKENS, "output_tokens": COMPLETION_TOKENS},
    }


def _blocks(body: Mapping[str, Any], asked: Scene) -> list[dict[str, Any]]:
    forced = body.get("tool_choice", {}).get("name")
    if forced and not asked.calls and asked.name != "ignores":  # how an answer in JSON is asked for
        return [{"type": "tool_use", "id": "toolu_0", "name": forced, "input": json.loads("".join(asked.pieces))}]
    if asked.calls:
        return [
            {"type": "tool_use", "id": f"toolu_{at}", "name": "weather", "input": {"city": city}}
            for at, city in enumerate(asked.calls)
        ]
    return [{"type": "text", "text": "".join(asked.pieces)}]


def _events(body: Mapping[str, Any], asked: Scene) -> list[str]:
    start = {**_message(body, asked), "stop_reason": None, "usage": {"input_tokens": PROMPT_TOKENS, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for block in _blocks(body, asked):
        if block["type"] == "text":
            blocks.append(({**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in asked.pieces]))
            continue
        arguments = json.dumps(block["input"])
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in (arguments[:5], arguments[5:])]
        blocks.append(({**block, "input": {}}, deltas))
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": FINISH[asked.finish], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ending, "usage": {"output_tokens": COMPLETION_TOKENS}})
    events.append({"type": "message_stop"})
    return [sse(event, event["type"]) for event in events]
