"""The values of a rendered prompt, from the answer of ``/v1/render``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from gateway.viewer.exact_text import MAX_MARKED
from metatemplate.markers.marker_set import tokens_around
from metatemplate.tokenizer import Tokenizer

MAX_SEGMENTS = 1000
"""The number of segments shown with their own colours. The rest of the prompt is one segment."""
MAX_ROWS = 200
"""The number of rows of the table of segments."""
MAX_TOKENS = 1000
"""The number of tokens shown with their ids."""
COLORS = 6
"""The number of colours for roles. Further roles use them again."""
MARKER_NOTICES = "markers_"
"""The beginning of the notices about markers in the texts of the client."""


def result_views(body: Mapping[str, Any], tokens: Tokenizer | None = None) -> list[dict[str, Any]]:
    """Return the values of each prompt in an answer of ``/v1/render``: one prompt, or one for each turn or label."""
    if "turns" in body:
        return [_view(turn, tokens, f"Turn {number}") for number, turn in enumerate(body["turns"], 1)]
    if "labels" in body:
        return [_view({**body, **_as_prompt(made)}, tokens, f"Label {label}") for label, made in body["labels"].items()]
    return [_view(body, tokens, "")]


def _as_prompt(made: str | list[Any]) -> dict[str, Any]:
    return {"prompt": made, "prompt_sha256": None} if isinstance(made, str) else {"messages": made}


def prompt_text(body: Mapping[str, Any]) -> str:
    """Return the prompt as one text. Of messages, each becomes one line of JSON, as in ``gateway diff``."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return prompt
    return "".join([f"{json.dumps(message, ensure_ascii=False)}\n" for message in body.get("messages") or ()])


def _view(body: Mapping[str, Any], tokens: Tokenizer | None, title: str) -> dict[str, Any]:
    text = prompt_text(body)
    raw = body.get("segments") or [{"text": text, "role": "", "origin": "mixed", "scaffold": False}]
    if not isinstance(body.get("prompt"), str):
        raw = [message_segment(message, number) for number, message in enumerate(body.get("messages") or ())]
    ids = body.get("token_ids")
    notices = list(body.get("notices", ()))
    return {
        "title": title,
        "is_messages": not isinstance(body.get("prompt"), str),
        **{name: body.get(name) for name in ("model", "template", "dataset_prompt", "policy", "bos", "prompt_sha256")},
        "bytes": len(text.encode("utf-8", "surrogatepass")),
        "characters": len(text),
        "prompt": text,
        **colored(raw, "dataset" if body.get("dataset_prompt") else "client", tokens),
        "token_count": None if ids is None else len(ids),
        "sends_ids": body.get("prompt_form") == "ids",
        "different": body.get("first_different_token"),
        "tokens": [] if ids is None or tokens is None else _tokens(text, ids, tokens),
        "stop": body.get("stop", []),
        "stop_token_ids": body.get("stop_token_ids", []),
        "params": {name: json.dumps(value, ensure_ascii=False) for name, value in body.get("params", {}).items()},
        "notices": [one for one in notices if not one.startswith(MARKER_NOTICES)],
        "markers": [one for one in notices if one.startswith(MARKER_NOTICES)],
    }


def settings(bodies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the table of what belongs to prompts besides their text: stops, BOS, parameters. A missing value is None.

    ``values``: one for each answer of ``/v1/render``, as JSON. ``set_by_gateway``: whether the gateway has set each.
    """
    names = ("template", "policy", "stop", "stop_token_ids", "bos")
    named = [{**{name: body.get(name) for name in names}, **body.get("params", {})} for body in bodies]
    found = [{name: json.dumps(value, ensure_ascii=False) for name, value in one.items()} for one in named]
    notices = [body.get("notices", ()) for body in bodies]
    rows = [(name, [one.get(name) for one in found]) for name in dict.fromkeys(chain(*found))]
    table = [{"name": name, "values": values, "is_equal": len({*values}) == 1} for name, values in rows]
    for row, (name, values) in zip(table, rows, strict=True):
        default = [f"default_parameter: {name}={value}" for value in values]
        row["set_by_gateway"] = [one in found for one, found in zip(default, notices, strict=True)]
    return table


def colored(raw: Sequence[Mapping[str, Any]], content: str, tokens: Tokenizer | None = None) -> dict[str, Any]:
    """Return the values of ``show_prompt`` in ``segments.html``: the segments with their colours, and their legend.

    ``content``: the kind of the texts that the template has not written. ``tokens``: None if it is not known.
    """
    roles = list(dict.fromkeys([one["role"] for one in raw]))
    return {
        "roles": roles[:COLORS],
        "segments": list(_segments(raw, roles, content)),
        "special_tokens": _special_tokens("".join([one["text"] for one in raw]), raw, tokens),
    }


def message_segment(message: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a message as a segment: one line of JSON."""
    text = f"{json.dumps(message, ensure_ascii=False)}\n"
    return {"text": text, "role": str(message.get("role", "")), "origin": f"messages[{number}]", "scaffold": False}


def _segments(raw: Sequence[Mapping[str, Any]], roles: list[str], content: str) -> Iterator[dict[str, Any]]:
    marked = MAX_MARKED
    for one in _limited(raw):
        kind = "template" if one["scaffold"] else "mixed" if one["origin"] == "mixed" else content
        yield {
            **{name: one[name] for name in ("text", "role", "origin")},
            "kind": kind,
            "color": roles.index(one["role"]) % COLORS if one["role"] in roles else 0,
            "marked": min(marked, len(one["text"])),
        }
        marked = max(0, marked - len(one["text"]))


def _limited(raw: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    yield from raw[:MAX_SEGMENTS]
    if rest := "".join([one["text"] for one in raw[MAX_SEGMENTS:]]):
        yield {"text": rest, "role": "", "origin": "mixed", "scaffold": False}


def _special_tokens(text: str, raw: Sequence[Mapping[str, Any]], tokens: Tokenizer | None) -> list[str]:
    """Return the special tokens in a prompt: those of the tokenizer, and token-like texts that the template writes."""
    scaffold = [one["text"] for one in raw[:MAX_SEGMENTS] if one["scaffold"]]
    found = {name for one in scaffold for name in tokens_around(one)}
    known = tokens.added_tokens() if tokens is not None else {}
    return sorted(found | {name for name, special in known.items() if special and name in text})


def _tokens(text: str, ids: Sequence[int], tokens: Tokenizer) -> list[dict[str, Any]]:
    """Return the first tokens, each with its text in the prompt, or with its name if the tokenizer has added it.

    ``is_part``: several tokens are the bytes of this character. All have their names if the text has other tokens.
    """
    borders = (tokens.borders(text, ids) or [(0, 0)] * len(ids))[:MAX_TOKENS]
    names = tokens.names(ids[: len(borders)])
    uses = Counter(borders)
    return [
        {"id": id_, "text": text[start:end] or name or "", "is_part": end > start and uses[start, end] > 1}
        for id_, name, (start, end) in zip(ids, names, borders, strict=False)
    ]
