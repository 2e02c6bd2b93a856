"""One row of a run, or of two runs side by side."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain, repeat
from typing import Any

from gateway.core.caller import Caller
from gateway.evaluate.analysis.rows import RunRow
from gateway.evaluate.analysis.why import explain, first_different_step
from gateway.viewer.page import PageRequest
from gateway.viewer.runs.links import required
from gateway.viewer.runs.reader import RunReader
from metatemplate.templates.registry import first_difference
from metatemplate.values.words import excerpts, printable


def row_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of a row of one run."""
    name, run = required(asked, "row"), required(asked, "run")
    row = reader.one(run, caller, name)
    return {"row": name, "place": "", "differences": {}, "change": None, "columns": [_column(run, row, None)]}


def pair_row_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of a row of two runs."""
    name, a, b = required(asked, "row"), required(asked, "a"), asked.query["b"]
    one = reader.one(a, caller, name)
    other = reader.one(b, caller, asked.query.get("other", name))
    found = explain([one], [other])
    (one, other), _ = first_different_step(one, other)
    return {
        "row": name,
        "place": _place(one.facts.prompt, other.facts.prompt),
        "differences": found.found[0].differences if found.found else {},
        "change": found.changes[0] if found.scored and found.changes else None,
        "columns": [_column(a, one, other), _column(b, other, one)],
    }


def _place(one: str | None, other: str | None) -> str:
    """Return the place of the first difference of two prompts; empty if they are equal or not known."""
    if one is None or other is None or one == other:
        return ""
    return excerpts(one, other, first_difference(one, other))[0]


def _marked(text: str | None, other: str | None) -> dict[str, str] | None:
    """Return a text in three parts: up to the first difference from ``other``, the different character, and the rest.

    If one of the texts is not known, or both are equal, the first part is the whole text.
    """
    if text is None:
        return None
    if other is None or text == other:
        return {"same": text, "different": "", "rest": ""}
    at = first_difference(text, other)
    return {"same": text[:at], "different": printable(text[at : at + 1]) or "end of the text", "rest": text[at + 1 :]}


def _column(run: str, row: RunRow, other: RunRow | None) -> dict[str, Any]:
    """Return what a page shows of a row. ``other``: the row of the other run, to mark the differences."""
    facts = row.facts
    other_prompt, texts = (None, []) if other is None else (other.facts.prompt, [one.text for one in other.answers])
    return {
        "run": run,
        "row": row.custom_id,
        "model": row.model,
        "template": facts.template,
        "target": facts.target,
        "error": row.error,
        "prompt": _marked(facts.prompt, other_prompt),
        "params": facts.params,
        "answers": [
            {**asdict(answer), "text": _marked(answer.text, text)}
            for answer, text in zip(row.answers, chain(texts, repeat(None)), strict=False)
        ],
    }
