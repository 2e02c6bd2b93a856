"""One row of a run, or of two runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, repeat
from typing import Any

from gateway.core.caller import Caller
from gateway.evaluate.analysis.client_text import beginning, expected_text, plain_question
from gateway.evaluate.analysis.differences import compared_parameters
from gateway.evaluate.analysis.rows import RunRow
from gateway.evaluate.analysis.why import Explanation, RowDifference, first_different_step
from gateway.evaluate.reporting.lines import difference_lines
from gateway.viewer.page import PageRequest
from gateway.viewer.runs.findings import RunFindings, findings_of
from gateway.viewer.runs.links import kept, link_to, place_in_list, required, without
from gateway.viewer.runs.pair_list import FILTERS, PAIR, compared, row_link, selected
from gateway.viewer.runs.reader import RunReader
from gateway.wire.json import dump_json
from metatemplate.templates.registry import first_difference
from metatemplate.values.words import excerpts


def row_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of a row of one run."""
    name, run = required(asked, "row"), required(asked, "run")
    row = reader.one(run, caller, name)
    found: RunFindings | None = reader.kept(caller, findings_of, run)
    query, listed = without(asked.query, "row"), [] if found is None else found.selected(asked.query)
    place = partial(place_in_list, asked, listed, lambda one: one.custom_id == name)
    return {
        **_values([run], [row], None),
        "is_binary": found is not None and bool(found.rows[0].facts["verdict"]),
        "in_list": place(lambda one: link_to(asked, "row", **query, row=one.custom_id)),
        "filters": without(query, "run"),
        "whole": {"name": f"Report of {run}", "link": link_to(asked, "report", run=run)},
    }


def pair_row_values(reader: RunReader, asked: PageRequest, caller: Caller) -> dict[str, Any]:
    """Return the values of a row of two runs."""
    name, a, b = required(asked, "row"), required(asked, "a"), asked.query["b"]
    other_name = asked.query.get("other", name)
    rows, _ = first_different_step(reader.one(a, caller, name), reader.one(b, caller, other_name))
    found: Explanation | None = compared(reader.kept, asked, caller)
    listed, is_binary = ([], False) if found is None else (selected(found, asked), found.binary)
    if found is None:  # a long run is not read for one row
        found = Explanation()
        found.add(*rows)
    one = next((one for one in found.found if (one.custom_id, one.other_id) == (name, other_name)), None)
    return {
        **_values([a, b], rows, one),
        "is_binary": is_binary,
        "in_list": place_in_list(asked, listed, lambda row: row is one, partial(row_link, asked)),
        "filters": kept(asked, *FILTERS),
        "whole": {"name": f"Why {a} and {b} differ", "link": link_to(asked, "why", **kept(asked, *PAIR))},
    }


def _values(runs: Sequence[str], rows: Sequence[RunRow], difference: RowDifference | None) -> dict[str, Any]:
    """Return what both pages show of one or two rows."""
    others = [None] if len(rows) == 1 else rows[::-1]
    a, b = rows[0].facts.prompt, rows[-1].facts.prompt
    one, other = rows[0].facts.params or {}, rows[-1].facts.params or {}
    different = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    compared_names = set(chain(*[params or () for params in compared_parameters(rows[0].facts, rows[-1].facts)]))
    questions = [plain_question(row.read_asked() or {}) for row in rows]
    is_same = not all(questions) or questions[0] == questions[-1]
    return {
        "row": rows[0].custom_id,
        "place": excerpts(a, b, first_difference(a, b))[0] if a and b and a != b else "",
        "differences": difference.differences if difference else {},
        "lines": [line.strip() for line in difference_lines(difference)] if difference else [],
        "question": (questions[0] or questions[-1]) if is_same else "",
        "questions": [] if is_same else [marked(*questions), marked(*questions[::-1])],
        "expected": expected_text(rows[0]) or expected_text(rows[-1]),
        "different": different,
        "not_counted": [name for name in different if name not in compared_names],
        "columns": [_column(*one) for one in zip(runs, rows, others, strict=True)],
    }


def marked(text: str, other: str | None) -> dict[str, Any]:
    """Return a text in three parts: up to the first difference from ``other``, what differs, and the rest.

    What differs are the few characters that ``other`` lacks, nothing if this text lacks them, or else one character.
    If ``other`` is not known, or both are equal, the first part is the whole text.
    """
    if other is None or text == other:
        return {"is_marked": False, "same": text, "different": "", "rest": ""}
    at = first_difference(text, other)
    more, less = _added(text, other, at), _added(other, text, at)
    end = at + (1 if more == less else more if more < less else 0)
    return {"is_marked": True, "same": text[:at], "different": text[at:end], "rest": text[end:]}


def _added(text: str, other: str, at: int) -> int:
    """Return how many characters of a text from ``at`` on ``other`` lacks, of which 8 then agree; 9 for more than 8."""
    return next((count for count in range(1, 9) if text.startswith(other[at : at + 8], at + count)), 9)


def _column(run: str, row: RunRow, other: RunRow | None) -> dict[str, Any]:
    """Return what a page shows of a row. ``other``: the row of the other run, to mark the differences."""
    facts = row.facts
    other_prompt, texts = (None, []) if other is None else (other.facts.prompt, [one.text for one in other.answers])
    return {
        "run": run,
        "row": row.custom_id,
        "points": row.known_points(),
        "beginning": beginning(row.first_text()),
        "model": row.model,
        "template": facts.template,
        "target": facts.target,
        "error": row.error,
        "message": next((call["error"] for call in row.read_calls() if call["error"]), ""),
        "request_id": row.request_id,
        "params": {name: dump_json(value) for name, value in (facts.params or {}).items()},
        "prompt": None if facts.prompt is None else marked(facts.prompt, other_prompt),
        "answers": [
            {**asdict(answer), "text": marked(answer.text, text)}
            for answer, text in zip(row.answers, chain(texts, repeat(None)), strict=False)
        ],
    }
