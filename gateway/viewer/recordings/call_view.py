"""The values of one recorded call: outcome, facts, prompts, answers, and events on a time line."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gateway.config.remedies import remedies
from gateway.evaluate.analysis.client_text import plain_question
from gateway.evaluate.analysis.recordings import failure_of
from gateway.storage.recordings import readable_prompts
from gateway.viewer.prompt.view import colored, message_segment
from gateway.viewer.recordings.list import HIDDEN, short_id, time_text
from gateway.viewer.templating import seconds

MAX_TEXT = 300_000
"""The maximum number of characters of an answer, of a question, and of all prompts of a request to the model."""
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
    *("time", "request_id", "endpoint", "template", "target", "policy", "key", "stream", "attempts"),
    *("failed_attempts", "cache", "dataset_prompt", "notices"),
)
"""The first facts of a call. The others and the hashes follow in ``FURTHER_FACTS``."""
TIMES = ("queue_wait", "upstream_first", "upstream", "client_wait", "overhead")
"""The times of a call, which files of earlier gateways do not have."""
FURTHER_FACTS = (
    *("status", "mode", "duration", "first_token", "prompt_tokens", "completion_tokens", "usage_source"),
    *("answers_cut", "stop_cuts", "template_sha256", "policy_sha256", "request_sha256", "target_settings", "version"),
)
EXCHANGE_FACTS = (
    *("time", "endpoint", "params", "n", "repeat", "seed", "stops", "stop_token_ids", "bos", "bos_text"),
    *("prompt_sha256", "prompt_ids", "answer_sha256", "delivered_sha256", "redacted"),
)
SHOWN: Mapping[str, Callable[[Any], str]] = {
    "time": time_text,
    "duration": seconds,
    "first_token": seconds,
    "stream": lambda on: "yes" if on else "no",
}
"""Name of a fact → the function that formats its value; ``_shown`` formats the others."""
ENDS_BY_STOP = {"gateway": "stop, cut by the gateway", "engine": "stop, by the engine"}


def call_values(call: Mapping[str, Any], exchanges: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of the page of a call."""
    stops = iter(call["stop_cuts"] or ())
    answers = [[_answer(choice, stops) for choice in one["answer"] or ()] for one in exchanges]
    last, outcome = answers[-1] if answers else [], call["outcome"]
    content = "dataset" if call["dataset_prompt"] else "client"
    return {
        **{name: call[name] for name in ("id", "request_id", "outcome", "status", "mode", "run", "row", "model")},
        "short_id": short_id(call["request_id"]),
        "error": failure_of(call),
        "remedy": remedies().get(outcome, ""),
        "cut": call["answers_cut"] or [],
        "seconds": call["duration"],
        "first_token": call["first_token"],
        "times": {name: call[name] for name in TIMES if call.get(name) is not None},
        "tokens": [call["prompt_tokens"], call["completion_tokens"]],
        "ends": list(dict.fromkeys([one["end"] for one in last])),
        "answers": last,
        "question": _cut(plain_question(call["asked"] or {})),
        "prompt_link": _prompt_link(call, exchanges),
        "facts": _facts({**call, "notices": _notices(call)}, FACTS),
        "further": _facts(call, FURTHER_FACTS),
        "exchanges": [
            {**_exchange(one, content), "answers": own}
            for one, own in zip(exchanges[:MAX_EXCHANGES], answers, strict=False)
        ],
        "exchange_count": len(exchanges),
    }


def _notices(call: Mapping[str, Any]) -> list[str]:
    """Return the notices; those of default values, which almost every call has, come last."""
    return sorted(call["notices"] or (), key=lambda one: one.startswith(HIDDEN))


def _exchange(exchange: Mapping[str, Any], content: str) -> dict[str, Any]:
    events = exchange["events"] or []
    firsts = [at for at, name, _ in events if name == "Delta"]
    return {
        "facts": _facts(exchange, EXCHANGE_FACTS),
        "prompt": colored(_segments(exchange), content),
        "has_texts": exchange["prompts"] is not None,
        "first": firsts[0] if firsts else None,
        "end": events[-1][0] if events else 0.0,
        "ticks": _ticks(events),
        "events": [
            {"at": at, "type": name, "text": _event_text(name, fields)} for at, name, fields in events[:MAX_EVENTS]
        ],
        "event_count": len(events),
    }


def _facts(row: Mapping[str, Any], names: Sequence[str]) -> list[list[str]]:
    values = [(name, row[name]) for name in names if row[name] not in (None, "", [], {})]
    return [[name, SHOWN.get(name, _shown)(value)] for name, value in values]


def _shown(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return _cut("; ".join(value))
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text: str, size: int = MAX_TEXT) -> str:
    return text if len(text) <= size else f"{text[:size]}… ({len(text) - size} more characters)"


def _segments(exchange: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of what was sent: of a rendered prompt its segments, else whole messages or prompts."""
    prompts = readable_prompts(exchange)
    parts, at = list[dict[str, Any]](), 0
    for size, role, origin, scaffold in exchange["segments"] or ():
        parts.append({"text": prompts[0][at : at + size], "role": role, "origin": origin, "scaffold": scaffold})
        at += size
    parts = parts or [message_segment(one, at) for at, one in enumerate(exchange["messages"] or ())]
    parts = parts or [
        {"text": _shown(one), "role": f"prompt {at}" if len(prompts) > 1 else "", "origin": "mixed", "scaffold": False}
        for at, one in enumerate(prompts, 1)
    ]
    room = MAX_TEXT
    for at, part in enumerate(parts):
        if (size := len(part["text"])) > room:
            left = sum([len(one["text"]) for one in parts[at:]]) - room
            return [*parts[:at], {**part, "text": f"{part['text'][:room]}… ({left} more characters)"}]
        room -= size
    return parts


def _answer(choice: Mapping[str, Any], stops: Iterator[str]) -> dict[str, Any]:
    reason = choice["finish_reason"] or "no end"
    return {
        "number": choice["index"] + 1,
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


def _prompt_link(call: Mapping[str, Any], exchanges: Sequence[Mapping[str, Any]]) -> str:
    """Return the part of an address that opens the client's request on the page Prompt.

    Empty for other calls than chats, if the messages are not recorded, and for a very long request.
    """
    asked: Mapping[str, Any] = call["asked"] or {}
    params: Mapping[str, Any] = exchanges[0]["params"] if exchanges else {}
    dataset = asked.get("dataset_prompt") or {}
    if call["endpoint"] not in ("chat", "render") or not (asked.get("messages") or dataset):
        return ""
    parameters = {name: value for name, value in params.items() if name != "tools"}
    if "turns" in asked and not dataset:
        parameters["gateway"] = {"turns": asked["turns"]}
    values = {
        "model": call["model"],
        "conversation": _json(asked.get("messages")),
        "tools": _json(asked.get("tools")),
        "dataset_prompt": dataset.get("id", ""),
        "row": _json(dataset.get("variables")),
        "parameters": _json(parameters),
    }
    text = json.dumps({name: value for name, value in values.items() if value}, separators=(",", ":")).encode("ascii")
    return "" if len(text) > MAX_REQUEST else f"#c={urlsafe_b64encode(text).decode('ascii').rstrip('=')}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) if value else ""
