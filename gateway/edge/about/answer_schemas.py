"""The JSON schemas of the answers. A schema lists the keys that every answer of a path has; most answers have more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _object(**properties: str | list[str] | dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with required keys. A value is a schema, or the name of a type, or a list."""
    rows = {name: row if isinstance(row, dict) else {"type": row} for name, row in properties.items()}
    return {"type": "object", "required": list(rows), "properties": rows}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


_MODEL = _object(id="string", object={"const": "model"}, created="integer", owned_by="string")
_USAGE = _or_null(_object(prompt_tokens="integer", completion_tokens="integer", total_tokens="integer"))
_MESSAGE = _object(role={"const": "assistant"}, content=["string", "null"])
_TOKENS = _object(
    count="integer", max_model_len=["integer", "null"], tokens=_list({"type": "integer"}), token_strs=["array", "null"]
)
_CHOICE = _object(index="integer", finish_reason="string", logprobs=["object", "null"])
_SCORE = _object(logprob="number", tokens="integer", characters="integer", bytes="integer", normalized="number",
                 perplexity=["number", "null"])  # fmt: skip
_TOKENIZER = _object(bos_token={}, eos_token={}, pad_token={})
_HEALTH = _object(status="string")
_TARGET = _object(name="string", avoided="boolean")
_SERVED_MODEL = _object(name="string", template="string", policy="string", targets=_list(_TARGET))
_NULLABLE_TEXT = ["string", "null"]

ERROR = _object(error=_object(message="string", type="string", param=_NULLABLE_TEXT, code="string"))
"""The schema of an error (``wire/error_object.py``)."""
ANSWERS: Mapping[str, dict[str, Any]] = {
    "/v1/chat/completions": _object(
        id="string", object={"const": "chat.completion"}, created="integer", model="string", usage=_USAGE,
        choices=_list({"allOf": [_CHOICE, _object(message=_MESSAGE)]}),
    ),
    "/v1/completions": _object(
        id="string", object={"const": "text_completion"}, created="integer", model="string", usage=_USAGE,
        choices=_list({"allOf": [_CHOICE, _object(text="string")]}),
    ),
    "/v1/embeddings": _object(data=_list({"type": "object"})),
    "/v1/responses": _object(
        id="string", object={"const": "response"}, created_at="integer", model="string", status="string",
        output=_list(_object(type="string", id="string", status="string")), usage=["object", "null"],
    ),
    "/v1/loglikelihood": _object(
        id="string", object={"const": "loglikelihood"}, model="string", prediction="string", normalize="string",
        candidates={"type": "object", "additionalProperties": _SCORE}, usage=_USAGE,
    ),
    "/v1/render": _object(model="string"),
    **dict.fromkeys(("/v1/tokenize", "/tokenize"), _TOKENS),
    **dict.fromkeys(("/v1/detokenize", "/detokenize"), _object(prompt="string")),
    **dict.fromkeys(("/{model}/v1/tokenizer_info", "/{model}/tokenizer_info"), _TOKENIZER),
    "/version": _object(version="string"),
    "/openapi.json": _object(openapi="string", paths="object"),
    "/v1/models": _object(object={"const": "list"}, data=_list(_MODEL)),
    "/v1/models/{model}": _MODEL,
    "/status": _object(
        state="string", started_at="string", version="string", revision="string", workers="integer",
        running_calls="integer", models=_list(_SERVED_MODEL),
        store=_or_null(_object(answers="boolean", problem=_NULLABLE_TEXT)),
        last_reload=_object(at=_NULLABLE_TEXT, error=_NULLABLE_TEXT),
    ),
    **dict.fromkeys(("/health", "/health/live", "/health/ready"), _HEALTH),
}  # fmt: skip
"""Path → the schema of its JSON answer with status 200."""
