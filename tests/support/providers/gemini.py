"""``generateContent`` and ``streamGenerateContent`` as the Gemini API reference describes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
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

FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "tools": "STOP"}

ERRORS: Mapping[int, tuple[str, str]] = {  # status: (status word, message)
    400: ("INVALID_ARGUMENT", REASON),
    401: ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
    403: ("PERMISSION_DENIED", "Your API key doesn't have the required permissions."),
    404: ("NOT_FOUND", "models/tiny is not found for API version v1beta"),
    429: ("RESOURCE_EXHAUSTED", "Resource has been exhausted (check quota)."),
    500: ("INTERNAL", "An internal error has occurred."),
    503: ("UNAVAILABLE", "The model is overloaded. Please try again later."),
    529: ("UNAVAILABLE", "Overloaded"),
}

BAD_KEY = {
    "message": "API key not valid. Please pass a valid API key.",
    "details": [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "API_KEY_INVALID",
            "domain": "googleapis.com",
            "metadata": {"service": "generativelanguage.googleapis.com"},
        }
    ],
}
"""What replaces the message of a 400 in the scene ``key``."""


def reply(request: Request) -> Reply:
    """The reply to one request; its keys may be written in either case, as in all of Google's APIs."""
    body = camel(request.body)
    asked = _scene(body)
    if asked.status != 200:
        word, message = ERRORS[asked.status]
        if asked.name == "context":
            message = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
        headers = (("retry-after", "7"),) if asked.status == 429 else ()
        error: dict[str, Any] = {"code": asked.status, "message": message, "status": word}
        if asked.name == "key":
            error |= BAD_KEY
        return Reply(json.dumps({"error": error}, indent=2), asked.status, headers=headers)
    if "streamGenerateContent" in request.path:
        chunks = [sse(chunk) for chunk in _chunks(body, asked)]
        return Reply(told(chunks, asked.end), content_type="text/event-stream", end=asked.end)
    config = body.get("generationConfig") or {}
    count = config.get("candidateCount") or 1
    candidates = [_candidate(asked, _parts(asked), asked.pieces, index, config) for index in range(count)]
    return Reply(_envelope(candidates), end=asked.end)


def camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {re.sub("_([a-z])", lambda found: found[1].upper(), key): camel(item) for key, item in value.items()}
    return [camel(item) for item in value] if isinstance(value, list) else value


def _scene(body: Mapping[str, Any]) -> Scene:
    texts = [
        part["text"]
        for content in body["contents"]
        if content["role"] == "user"
        for part in content["parts"]
        if "text" in part
    ]
    results = [
        part["functionResponse"]["response"]
        for content in body["contents"]
        for part in content["parts"]
        if "functionResponse" in part
    ]
    config = body.get("generationConfig") or {}
    return scene(
        texts[-1],
        tools=bool(body.get("tools")),
        result=str(next(iter(results[-1].values()))) if results else "",
        stops=config.get("stopSequences") or (),
        limit=config.get("maxOutputTokens"),
    )


def _parts(asked: Scene) -> list[dict[str, Any]]:
    if asked.calls:
        signed = {"thoughtSignature": "c2lnbmVk"}  # LiteLLM puts it into a field of each call
        return [{"functionCall": {"name": "weather", "args": {"city": city}}, **signed} for city in asked.calls]
    return [{"text": "".join(asked.pieces)}]


def _candidate(
    asked: Scene, parts: list[dict[str, Any]], pieces: Sequence[str], index: int, config: Mapping[str, Any]
) -> dict[str, Any]:
    candidate: dict[str, Any] = {
        "content": {"parts": parts, "role": "model"},
        "finishReason": FINISH[asked.finish],
        "index": index,
    }
    if config.get("responseLogprobs"):
        rows = [{"token": piece, "logProbability": -0.25} for piece in pieces]
        candidate["avgLogprobs"] = -0.25
        candidate["logprobsResult"] = {
            "chosenCandidates": rows,
            "topCandidates": [{"candidates": [row]} for row in rows],
        }
    return candidate


def _chunks(body: Mapping[str, Any], asked: Scene) -> list[dict[str, Any]]:
    config = body.get("generationConfig") or {}
    pieces = [[piece] for piece in asked.pieces] or [[]]
    chunks = []
    for at, said in enumerate(pieces):
        candidate = _candidate(asked, [{"text": said[0]}] if said else _parts(asked), said, 0, config)
        if at < len(pieces) - 1:
            del candidate["finishReason"]
        chunks.append(_envelope([candidate]))
    return chunks


def _envelope(candidates: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {
        "promptTokenCount": PROMPT_TOKENS,
        "candidatesTokenCount": COMPLETION_TOKENS,
        "totalTokenCount": PROMPT_TOKENS + COMPLETION_TOKENS,
    }
    return {"candidates": candidates, "usageMetadata": usage, "modelVersion": "tiny", "responseId": "r1"}
