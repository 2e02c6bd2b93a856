"""Ask a model for an answer in each of 200 random schemas, whole and as a stream, and count how the answers end.

``python -m tests.support.harnesses.random_objects http://127.0.0.1:8000/v1 demo``. Strings, lists and numbers
are bounded.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from typing import Any

import httpx
import jsonschema

from tests.support.random_schema import RandomSchema

SCHEMAS = 200


def bounded(schema: Any) -> Any:
    """A similar schema, whose values are short: they end also if a model chooses every token by chance."""
    if not isinstance(schema, dict) or not schema.keys() - {"description"}:
        return {"type": "boolean"}  # instead of any value
    kinds = {*schema["type"]} if isinstance(schema.get("type"), list) else {schema.get("type")}
    if kinds & {"integer", "number"}:
        return {"enum": [0, -7, 2.5] if "number" in kinds else [0, -7, 12]}
    short = dict(schema)
    if "string" in kinds:
        short.setdefault("maxLength", 8)
    if "array" in kinds:
        short |= {"items": bounded(schema["items"]), "maxItems": schema.get("maxItems", 2)}
    if "object" in kinds:
        short |= {"properties": schema.get("properties", {}), "additionalProperties": False}
    for key in {"properties", "$defs"} & short.keys():
        short[key] = {name: bounded(part) for name, part in short[key].items()}
    return short | ({"anyOf": [bounded(part) for part in schema["anyOf"]]} if "anyOf" in schema else {})


def ended(http: httpx.Client, model: str, seed: int, stream: bool) -> str:
    """How the answer to a schema ends: a finish reason, or an error. ``ValidationError``: it is not in the form."""
    schema = bounded(RandomSchema(seed).schema)
    form = {"type": "json_schema", "json_schema": {"name": "random", "schema": schema}}
    body = {"model": model, "messages": [{"role": "user", "content": "1+1=?"}], "response_format": form}
    answer = http.post(
        "chat/completions", json={**body, "max_tokens": 440, "temperature": 1, "seed": seed, "stream": stream}
    )
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    text, end = "", ""
    for event in events or [answer.json()]:
        if "error" in event:
            return re.sub(r"\[\d\d:\d\d:\d\d\] ", "", f"{event['error']['code']}: {event['error']['message']}")
        for choice in event["choices"]:
            text += choice.get("delta", choice.get("message")).get("content") or ""
            end = choice["finish_reason"] or end
    if end == "stop":
        jsonschema.validate(json.loads(text), schema)
    return end


def main() -> None:
    with httpx.Client(base_url=sys.argv[1], timeout=120, trust_env=False) as http:
        for stream in (False, True):
            ends = Counter(ended(http, sys.argv[2], seed, stream) for seed in range(SCHEMAS))
            print("stream" if stream else "whole", *(f"{count:5} {end}" for end, count in ends.most_common()), sep="\n")


if __name__ == "__main__":
    main()
