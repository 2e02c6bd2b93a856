"""Writes the result of ``gateway parity`` as text for people, or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from click import style

from gateway.cli.terminal import color_difference, diff_lines, escape_line, format_table
from gateway.workshop.comparing.comparison import Comparison
from gateway.workshop.parity.causes import CAUSES
from gateway.workshop.parity.compare import DIFFERENT, EQUAL, CaseResult, Verdict
from metatemplate.values.words import counted, escape

COLORS = {**dict.fromkeys(EQUAL, "green"), **dict.fromkeys(DIFFERENT, "red"), "not compared": "yellow"}

VERDICTS: dict[Verdict, str] = {
    "same": "the same",
    "refused by both": "refused by both, which counts as the same",
    "differs": "different",
    "refused by ours": "refused by ours only",
    "refused by the reference": "refused by the reference only",
    "not compared": "not compared",
}
"""Verdict → phrase for the summary, in the order of the summary."""


def is_equal(results: Sequence[CaseResult]) -> bool:
    """Return whether no case differs and both sides rendered at least one case."""
    return any(one.verdict == "same" for one in results) and not any(one.is_different for one in results)


def as_text(found: Comparison, *, show: int | None = None) -> str:
    """Return the whole report as text with colours. ``show``: the number of differences shown in full; None: all."""
    differing = [one for one in found.results if one.verdict == "differs"]
    in_full = differing[:show]
    omitted = len(differing) - len(in_full)
    lines = [*_head(found), "", *_table(found)]
    for one in in_full:
        names = f"ours: {one.case.name}", f"reference: {one.case.name}"
        lines += ["", *map(color_difference, diff_lines(one.ours.text, one.reference.text, *names))]
    if omitted:
        lines += ["", f"{counted(omitted, 'more difference')}; use --all to show all"]
    lines += [*_refusals(found.results), *_causes(found.results), "", _summary(found)]
    return "\n".join(lines) + "\n"


def _head(found: Comparison) -> Iterator[str]:
    yield f"ours       {escape_line(found.ours)}"
    yield f"reference  {escape_line(found.reference)}"
    yield f"engine     {found.engine}"
    yield f"BOS        {escape_line(found.bos)}"
    yield f"tokens     {escape_line(found.tokenizer)}"
    for note in found.notes:
        yield f"note       {escape_line(note)}"


def _table(found: Comparison) -> Iterator[str]:
    rows = [[found.unit, "verdict", "bytes", "tokens", "first different token", "note"]]
    rows += [_row(one, found) for one in found.results]
    if found.tokens is None:
        rows = [[*row[:3], row[-1]] for row in rows]
    header, *lines = format_table(rows)
    yield header
    for one, line in zip(found.results, lines, strict=True):
        yield style(line, fg=COLORS[one.verdict])


def _row(one: CaseResult, found: Comparison) -> list[str]:
    verdict = f"differs at byte {one.at}" if one.verdict == "differs" else one.verdict
    sizes, tokens, different = "", "", ""
    if one.verdict in ("same", "differs"):
        sizes = _pair(len(one.ours.text.encode()), len(one.reference.text.encode()))
    if one.tokens is not None:
        tokens = _pair(one.tokens.ours, one.tokens.reference)
        if one.tokens.at is not None:
            names = [_token(id_, found) for id_ in (one.tokens.ours_id, one.tokens.reference_id)]
            different = f"{one.tokens.at}: {' | '.join(names)}"
        elif one.verdict == "differs":
            different = "none: the same tokens"
    note = "one side has no complete conversations" if one.verdict == "not compared" else ", ".join(one.causes)
    return [one.case.name, verdict, sizes, tokens, different, note]


def _pair(ours: int, reference: int) -> str:
    return str(ours) if ours == reference else f"{ours} | {reference}"


def _token(id_: int | None, found: Comparison) -> str:
    if id_ is None or found.tokens is None:
        return "the end"
    return f'{id_} "{escape(found.tokens.detokenize([id_]))}"'


def _refusals(results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield lines with each reason for a refusal, followed by the cases that were refused for this reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in results:
        for name, side in (("ours", one.ours), ("the reference", one.reference)):
            if side.refused:
                reasons.setdefault((name, side.refused), []).append(f'"{one.case.name}"')
    if reasons:
        yield from ("", "refused:")
    for (name, reason), cases in reasons.items():
        yield f"  by {name}: {escape_line(reason)}"
        yield f"    in {', '.join(cases)}"


def _causes(results: Sequence[CaseResult]) -> Iterator[str]:
    counts = Counter(name for one in results for name in one.causes)
    if counts:
        yield from ("", "possible causes:")
    for name, advice in CAUSES.items():
        if name in counts:
            yield f"  {name} ({counted(counts[name], 'case')}): {advice}"


def _summary(found: Comparison) -> str:
    results = found.results
    counts = Counter([one.verdict for one in results])
    phrases = ", ".join([f"{counts[verdict]} {phrase}" for verdict, phrase in VERDICTS.items() if counts[verdict]])
    cases = f"{counted(len(results), found.unit)}: {phrases}."
    if is_equal(results):
        return style(f"{cases} The model receives the same prompt from both.", fg="green")
    if any(one.is_different for one in results):
        return style(f"{cases} The prompts are not the same.", fg="red")
    return style(f"{cases} No {found.unit} has prompts of both sides, so nothing was compared.", fg="red")


def report_json(found: Comparison) -> dict[str, Any]:
    """Return the report with both texts of every case, as plain values for JSON."""
    counts = Counter([one.verdict for one in found.results])
    causes = {name for one in found.results for name in one.causes}
    return {
        "ours": found.ours,
        "reference": found.reference,
        "engine": found.engine,
        "bos": found.bos,
        "tokenizer": found.tokenizer,
        "notes": list(found.notes),
        "agrees": is_equal(found.results),
        "counts": {verdict: counts[verdict] for verdict in VERDICTS},
        "causes": {name: advice for name, advice in CAUSES.items() if name in causes},
        "cases": [
            {
                "name": one.case.name,
                "messages": [dict(message) for message in one.case.messages],
                "tools": [dict(tool) for tool in one.case.tools],
                "continue_final_message": one.case.continue_final,
                "whole": one.case.whole,
                "verdict": one.verdict,
                "at": one.at,
                "ours": asdict(one.ours),
                "reference": asdict(one.reference),
                "tokens": None if one.tokens is None else asdict(one.tokens),
                "causes": list(one.causes),
            }
            for one in found.results
        ],
    }
