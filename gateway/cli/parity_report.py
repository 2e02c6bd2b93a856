"""How is a comparison told? As a table with the differences below it for people, as JSON for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gateway.cli.parity_sides import Comparison
from gateway.cli.textdiff import GREEN, RED, YELLOW, Paint, differing, near, printable, quoted
from gateway.parity.causes import CAUSES
from gateway.parity.compare import DIFFERENT, EQUAL, CaseResult, Verdict
from gateway.template.registry import first_difference

COLUMNS = ("case", "verdict", "bytes", "tokens", "first other token")
COLOURS = {**dict.fromkeys(EQUAL, GREEN), **dict.fromkeys(DIFFERENT, RED), "not compared": YELLOW}

NO_WHOLE = "one side knows no complete conversation"


def agrees(results: Sequence[CaseResult]) -> bool:
    """Is it the same prompt in every case, and in one at least?"""
    return any(one.verdict == "same" for one in results) and not any(one.is_different for one in results)


# ---------------------------------------------------------------- for people


def as_text(found: Comparison, *, shown: int | None, colour: bool) -> str:
    """The whole report; ``shown``: how many differences at length, None for all."""
    paint = Paint(colour)
    parted = [one for one in found.results if one.verdict == "differs"]
    at_length = parted if shown is None else parted[:shown]
    lines = [
        *_head(found),
        "",
        *_table(found, paint),
        *[line for one in at_length for line in _difference(one, paint)],
        *_left_out(len(parted) - len(at_length)),
        *_refusals(found.results),
        *_causes(found),
        "",
        _summary(found.results, paint),
    ]
    return "\n".join(lines) + "\n"


def _head(found: Comparison) -> Iterator[str]:
    yield f"ours       {printable(found.ours)}"
    yield f"reference  {printable(found.reference)}"
    yield f"engine     {found.engine}"
    yield f"BOS        {printable(found.bos)}"
    yield f"tokens     {printable(found.tokenizer)}"
    for note in found.notes:
        yield f"note       {printable(note)}"


def _table(found: Comparison, paint: Paint) -> Iterator[str]:
    rows = [_row(one, found) for one in found.results]
    number = len(COLUMNS) if any(one.tokens is not None for one in found.results) else len(COLUMNS) - 2
    widths = [max(len(name), *(len(row[place]) for row in rows)) for place, name in enumerate(COLUMNS[:number])]

    def line(cells: Sequence[str], note: str, colour: str = "") -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        if colour:
            padded[1] = paint(padded[1], colour)
        return "  ".join([*padded, note]).rstrip()

    yield line(COLUMNS, "note")
    for one, row in zip(found.results, rows, strict=True):
        yield line(row, _note(one), COLOURS[one.verdict])


def _row(one: CaseResult, found: Comparison) -> tuple[str, ...]:
    verdict = f"differs at byte {one.at}" if one.verdict == "differs" else one.verdict
    sizes, tokens, other = "", "", ""
    if one.verdict in ("same", "differs"):
        sizes = _pair(len(one.ours.text.encode()), len(one.reference.text.encode()))
    if one.tokens is not None:
        tokens = _pair(one.tokens.ours, one.tokens.reference)
        if one.tokens.at is not None:
            names = [_token(id_, found) for id_ in (one.tokens.ours_id, one.tokens.reference_id)]
            other = f"{one.tokens.at}: {' | '.join(names)}"
        elif one.verdict == "differs":
            other = "none: the same tokens"
    return one.case.name, verdict, sizes, tokens, other


def _pair(ours: int, reference: int) -> str:
    return str(ours) if ours == reference else f"{ours} | {reference}"


def _token(id_: int | None, found: Comparison) -> str:
    if id_ is None or found.tokens is None:
        return "the end"
    return f'{id_} "{quoted(found.tokens.detokenize([id_]))}"'


def _note(one: CaseResult) -> str:
    return NO_WHOLE if one.verdict == "not compared" else ", ".join(one.causes)


def _difference(one: CaseResult, paint: Paint) -> Iterator[str]:
    at = first_difference(one.ours.text, one.reference.text)
    yield ""
    yield paint(f"--- ours: {one.case.name}", RED)
    yield paint(f"+++ reference: {one.case.name}", GREEN)
    yield f"    at byte {one.at} ours has {near(one.ours.text, at)}"
    yield f"    and the reference {near(one.reference.text, at)}"
    yield from differing(one.ours.text, one.reference.text, paint)


def _left_out(number: int) -> Iterator[str]:
    if number:
        yield ""
        yield f"{number} more {'difference' if number == 1 else 'differences'}: --all shows every one"


def _refusals(results: Sequence[CaseResult]) -> Iterator[str]:
    """Each reason once, with the cases that it holds for."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in results:
        for name, side in (("ours", one.ours), ("the reference", one.reference)):
            if side.refused:
                reasons.setdefault((name, side.refused), []).append(one.case.name)
    if reasons:
        yield ""
        yield "refused:"
    for (name, reason), cases in reasons.items():
        yield f"  by {name}: {printable(reason)}"
        yield "    in " + ", ".join([f'"{case}"' for case in cases])


def _causes(found: Comparison) -> Iterator[str]:
    counted = Counter(name for one in found.results for name in one.causes)
    if counted:
        yield ""
        yield "what may be the cause:"
    for name, cause in CAUSES.items():
        if name in counted:
            yield f"  {name} ({counted[name]} {'case' if counted[name] == 1 else 'cases'}): {cause.advice}"


COUNTED: Sequence[tuple[Verdict, str]] = (
    ("same", "the same"),
    ("refused by both", "refused by both, which is the same too"),
    ("differs", "different"),
    ("refused by ours", "refused by ours only"),
    ("refused by the reference", "refused by the reference only"),
    ("not compared", "not compared"),
)


def _summary(results: Sequence[CaseResult], paint: Paint) -> str:
    counted = Counter([one.verdict for one in results])
    said = ", ".join([f"{counted[verdict]} {words}" for verdict, words in COUNTED if counted[verdict]])
    cases = f"{len(results)} {'case' if len(results) == 1 else 'cases'}: {said}."
    if agrees(results):
        return paint(f"{cases} The model sees the same prompt from both.", GREEN)
    if any(one.is_different for one in results):
        return paint(f"{cases} The two templates are not the same.", RED)
    return paint(f"{cases} Nothing was rendered by both, so nothing is proved.", RED)


# ---------------------------------------------------------------- for machines


def as_json(found: Comparison) -> dict[str, Any]:
    """Everything, in plain values."""
    counted = Counter([one.verdict for one in found.results])
    told = {name for one in found.results for name in one.causes}
    return {
        "ours": found.ours,
        "reference": found.reference,
        "engine": found.engine,
        "bos": found.bos,
        "tokenizer": found.tokenizer,
        "notes": list(found.notes),
        "agrees": agrees(found.results),
        "counts": {verdict: counted[verdict] for verdict, _ in COUNTED},
        "causes": {name: cause.advice for name, cause in CAUSES.items() if name in told},
        "cases": [_case(one) for one in found.results],
    }


def _case(one: CaseResult) -> dict[str, Any]:
    return {
        "name": one.case.name,
        "messages": [dict(message) for message in one.case.messages],
        "tools": [dict(tool) for tool in one.case.tools],
        "continue_final_message": one.case.continue_final,
        "whole": one.case.whole,
        "verdict": one.verdict,
        "at": one.at,
        "ours": {"text": one.ours.text, "refused": one.ours.refused, "code": one.ours.code},
        "reference": {"text": one.reference.text, "refused": one.reference.refused, "code": one.reference.code},
        "tokens": None if one.tokens is None else asdict(one.tokens),
        "causes": list(one.causes),
    }
