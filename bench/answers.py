"""What does the engine say? The canned answers of both upstreams, in vLLM's wire shape."""

from __future__ import annotations

import json

MODEL = "bench"
TEXT = " The quick brown fox jumps over the lazy dog, then rests a while under the old oak tree."
"""About twenty tokens; it holds no template's end marker."""
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
SERVER = {"model_path": MODEL, "served_model_name": MODEL, "is_generation": True}

RENDERED = {"request_id": "chatcmpl-bench", "token_ids": list(range(1000, 1024)), "model": MODEL}

WHOLE: dict[str, object] = {
    # path → the answer to any request that wants no stream
    "/v1/completions": COMPLETION,
    "/v1/chat/completions": CHAT,
    "/v1/models": MODELS,
    "/health": {},
    "/health_generate": {},
    "/get_model_info": SERVER,
    "/model_info": SERVER,
    "/get_server_info": SERVER,
    "/server_info": SERVER,
    # what vLLM's router asks before it routes by prefix
    "/v1/chat/completions/render": RENDERED,
    "/tokenize": {"tokens": RENDERED["token_ids"], "count": 24, "max_model_len": 32768},
}


def text_of(path: str) -> str:
    """The answer of a path, as compact JSON."""
    return json.dumps(WHOLE[path], separators=(",", ":"))
