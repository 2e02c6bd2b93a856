"""Fixed JSON responses of both mock upstreams, in vLLM's format."""

from __future__ import annotations

import json

MODEL = "bench"
TEXT = " The quick brown fox jumps over the lazy dog, then rests a while under the old oak tree."
"""About twenty tokens, without the end marker of any template."""
USAGE = {"prompt_tokens": 24, "total_tokens": 44, "completion_tokens": 20, "prompt_tokens_details": None}

COMPLETION = {
    "id": "cmpl-bench",
    "object": "text_completion",
    "created": 1760000000,
    "model": MODEL,
    "choices": [{"index": 0, "text": TEXT, "logprobs": None, "finish_reason": "stop", "stop_reason": None}],
    "usage": USAGE,
}
CHAT = {
    "id": "chatcmpl-bench",
    "object": "chat.completion",
    "created": 1760000000,
    "model": MODEL,
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": TEXT},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ],
    "usage": USAGE,
}
MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1760000000, "owned_by": "bench"}]}
SERVER_INFO = {"model_path": MODEL, "served_model_name": MODEL, "is_generation": True}

RENDERED = {"request_id": "chatcmpl-bench", "token_ids": list(range(1000, 1024)), "model": MODEL}

RESPONSES: dict[str, object] = {
    # path → response to any non-streamed request
    "/v1/completions": COMPLETION,
    "/v1/chat/completions": CHAT,
    "/v1/models": MODELS,
    "/health": {},
    "/health_generate": {},
    "/get_model_info": SERVER_INFO,
    "/model_info": SERVER_INFO,
    "/get_server_info": SERVER_INFO,
    "/server_info": SERVER_INFO,
    # vLLM's router requests these before it routes by prefix
    "/v1/chat/completions/render": RENDERED,
    "/tokenize": {"tokens": RENDERED["token_ids"], "count": 24, "max_model_len": 32768},
}


def response_json(path: str) -> str:
    """The response body of a path, as compact JSON."""
    return json.dumps(RESPONSES[path], separators=(",", ":"))
