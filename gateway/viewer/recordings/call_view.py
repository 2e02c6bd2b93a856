"""The values of one recorded call: facts, prompts, answers, and events on a time line."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gateway.viewer.exact_text import MAX_MARKED

MAX_TEXT = 300_000
"""The maximum number of characters of an answer, and of all prompts of a request to the model."""
MAX_EXCHANGES = 20
"""The maximum number of requests to the model on the page."""
MAX_EVENTS = 200
"""The maximum number of rows of the table of events."""
MAX_EVENT = 200
"""The maximum number of characters of an event in the table."""
MAX_REQUEST = 32 * 1024
"""The maximum size of a request in a link, in bytes."""
TICKS = 600
"""The width of a time line. Events less than 1/600 of the time apart share a tick."""
FACTS = (
    "request_id", "model", "key", "run", "row", "outcome", "status", "duration", "first_token", "endpoint", "mode",
    "stream", "target", "attempts", "failed_attempts", "cache", "prompt_tokens", "completion_tokens",
    "usage_source", "answers_cut", "stop_cuts", "notices", "dataset_prompt", "template", "template_sha256", "policy",
    "policy_sha256", "request_sha256", "target_settings", "version",
)  # fmt: skip
EXCHANGE_FACTS = (
    "endpoint",
    "params",
    "n",
    "repeat",
    "seed",
    "stops",
    "stop_token_ids",
    "bos",
    "bos_text",
    "prompt_sha256",
    "answer_sha256",
    "delivered_sha256",
    "redacted",
)
ENDS_BY_STOP = {"gateway": "stop, cut by the gateway", "engine": "stop, by the engine"}


def listed_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a call in a list."""
    names = ("id", "request_id", "model", "key", "run", "outcome", "status", "duration", "first_token")
    return {
        **{name: call.get(name) for name in (*names, "prompt_tokens", "completion_tokens")},
        "time": _time(call["time"]),
        "notices": call.get("notices") or [],
        "cut": call.get("answers_cut") or [],
    }


def call_values(call: Mapping[str, Any], exchanges: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of the page of a call."""
    stops = iter(call.get("stop_cuts") or ())
    return {
        "id": call["id"],
        "request_id": call["request_id"],
        "facts": [["time", _time(call["time"])], *_facts(call, FACTS)],
        "exchanges": [_exchange(call, one, stops) for one in exchanges[:MAX_EXCHANGES]],
        "exchange_count": len(exchanges),
    }


def _exchange(call: Mapping[str, Any], exchange: Mapping[str, Any], stops: Iterator[str]) -> dict[str, Any]:
    events = exchange["events"] or []
    firsts = [at for at, name, _ in events if name == "Delta"]
    return {
        "facts": [["opened", _time(exchange["time"])], *_facts(exchange, EXCHANGE_FACTS)],
        "segments": _segments(exchange),
        "answers": [_answer(choice, stops) for choice in exchange.get("answer") or ()],
        "has_texts": exchange["prompts"] is not None,
        "first": firsts[0] if firsts else None,
        "end": events[-1][0] if events else 0.0,
        "ticks": _ticks(events),
        "events": [
            {"at": at, "type": name, "text": _event_text(name, fields)} for at, name, fields in events[:MAX_EVENTS]
        ],
        "event_count": len(events),
        "prompt_link": _prompt_link(call, exchange),
    }


def _facts(row: Mapping[str, Any], names: Sequence[str]) -> list[list[str]]:
    return [[name, _shown(row[name])] for name in names if row.get(name) not in (None, "", [], {})]


def _shown(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return _cut("; ".join(value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text: str, size: int = MAX_TEXT) -> str:
    return text if len(text) <= size else f"{text[:size]}… ({len(text) - size} more characters)"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _segments(exchange: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what was sent: messages, each with its role, or prompts. Recordings do not divide a prompt further."""
    parts = [
        (one.get("content"), one.get("role", ""), f"messages[{at}]")
        for at, one in enumerate(exchange["messages"] or ())
    ]
    parts = parts or [(one, f"prompt {at + 1}", f"prompts[{at}]") for at, one in enumerate(exchange["prompts"] or ())]
    segments, shown, marked = [], MAX_TEXT, MAX_MARKED
    for content, role, origin in parts:
        text = _cut(_shown(content), shown)
        segments.append({"text": text, "role": str(role), "origin": origin, "marked": min(marked, len(text))})
        shown, marked = max(0, shown - len(text)), max(0, marked - len(text))
    return segments


def _answer(choice: Mapping[str, Any], stops: Iterator[str]) -> dict[str, Any]:
    reason = choice["finish_reason"] or "no end"
    return {
        "index": choice["index"],
        "text": _cut(choice["text"]),
        "fields": [[name, _shown(value)] for name, value in (choice.get("fields") or {}).items()],
        "end": ENDS_BY_STOP.get(next(stops, ""), reason) if reason == "stop" else reason,
    }


def _event_text(name: str, fields: Any) -> str:
    """Return an event in one line. ``fields`` is a number of characters in recordings without texts."""
    if name == "Delta" and isinstance(fields, dict) and fields.keys() <= {"index", "text"}:
        return _cut(fields.get("text", ""), MAX_EVENT)
    return "" if fields is None else _cut(json.dumps(fields, ensure_ascii=False), MAX_EVENT)


def _ticks(events: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the places on the time line, each with its time and the events there."""
    end = (events[-1][0] if events else 0.0) or 1.0
    ticks = dict[int, dict[str, Any]]()
    for at, name, _ in events:
        x = max(0, min(TICKS, round(at / end * TICKS)))
        tick = ticks.setdefault(x, {"x": x, "at": at, "type": name, "count": 0})
        tick["count"] += 1
    return list(ticks.values())


def _prompt_link(call: Mapping[str, Any], exchange: Mapping[str, Any]) -> str:
    """Return the part of an address that opens the same request on the page Prompt. Empty without the messages."""
    if not exchange["messages"] or call["endpoint"] != "chat":
        return ""
    values = {
        "model": call["model"],
        "conversation": json.dumps(exchange["messages"], ensure_ascii=False, indent=1),
        "parameters": json.dumps(exchange["params"]) if exchange["params"] else "",
    }
    text = json.dumps(values, separators=(",", ":")).encode("ascii")
    return "" if len(text) > MAX_REQUEST else f"#c={urlsafe_b64encode(text).decode('ascii').rstrip('=')}"
