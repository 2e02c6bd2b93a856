"""Reports and comparisons of runs as lines of text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gateway.cli.terminal import format_table
from gateway.evaluate.analysis.answer_class import CLASSES
from gateway.evaluate.analysis.differences import SAMPLED
from gateway.evaluate.analysis.prove import PROVABLE, Proof
from gateway.evaluate.analysis.report import RunReport
from gateway.evaluate.analysis.sampling import NEAR_TIE, WIDE_GAP
from gateway.evaluate.analysis.scores import Mean
from gateway.evaluate.analysis.why import REMARKS_OF, Explanation, RowDifference
from metatemplate.values.words import counted, printable

HASH = re.compile(r"@sha256:\w+")


def report_lines(report: RunReport, score: str = "") -> Iterator[str]:
    """Yield the lines of a report. ``score``: the name of the score, if one was requested."""
    found = [name for name in CLASSES if report.classes[name]]
    rows = [(name, str(report.classes[name]), _share(report.classes[name], report.rows)) for name in found]
    yield from format_table([("class", "rows", "share"), *rows, ("all", str(report.rows), _share(1, 1))])
    for name, values in report.groups.items():
        if len(values) < 2:
            continue
        yield ""
        table = [(printable(key), *[str(counts[one]) for one in found]) for key, counts in sorted(values.items())]
        yield from format_table([(name, *found), *table])
    if report.all_rows is not None and report.whole_rows is not None:
        yield ""
        yield f"score ({score}): {_mean(report.all_rows)} over all {report.all_rows.rows} rows"
        whole = report.whole_rows.rows
        if not whole:
            yield "no row is whole"
        elif whole < report.all_rows.rows:
            yield f"{_mean(report.whole_rows)} over the {whole} whole answers only (easy rows finish more often)"
    if report.unchecked_calls:
        yield ""
        yield (
            f"the tool calls of {report.unchecked_calls} rows were not compared with the tools of their requests: "
            "these are not recorded, or their schemas cannot be checked"
        )


def why_lines(found: Explanation, a: str, b: str) -> Iterator[str]:
    """Yield the lines of a comparison of the runs ``a`` and ``b``."""
    yield from count_lines(found, a, b)
    if not found.found:
        return
    yield ""
    head = ("rows by first difference", "rows", "score") if found.scored else ("rows by first difference", "rows")
    table = [(cause, str(rows), f"{part:+.3f}") for cause, (rows, part) in found.by_cause().items()]
    yield from format_table([head, *[row[: len(head)] for row in table]])
    yield from change_lines(found)
    yield from kind_lines(found)
    for cause in found.by_cause():
        one = next(one for one in found.found if one.cause == cause)
        yield ""
        yield f"{cause}, for example row {printable(one.custom_id)}:"
        yield from difference_lines(one)
    yield from target_lines(found)


def headline(found: Explanation) -> str:
    """Return the sentence about a comparison that a page begins with: the scores, the rows and the causes."""
    causes, scores = found.grouped(lambda one: one.cause), found.scores()
    change = "" if scores is None else f"{scores[0]:.3f} → {scores[1]:.3f} ({scores[1] - scores[0]:+.3f}): "
    if not causes:
        return f"{change}no answer or score differs" if found.rows else "no row was compared"
    parts = [
        f"{name} ({counted(rows, 'row')}{f', {part:+.3f}' if found.scored else ''})"
        for name, (rows, part) in causes.items()
    ]
    what = f"one cause: {_only_cause(found)}" if len(parts) == 1 else f"{len(parts)} causes: {', '.join(parts)}"
    return f"{change}{len(found.found)} of {found.rows} rows differ, {what}"


def _only_cause(found: Explanation) -> str:
    """Return the only cause of a comparison, with what all its rows have in common."""
    cause, split = found.found[0].cause, [one.where.partition(", template ") for one in found.found]
    places, templates = {place for place, _, _ in split}, {template for _, _, template in split}
    place = (
        " and ".join(sorted(places, key=lambda one: (len(one), one))) if len(places) < 4 else f"{len(places)} places"
    )
    if cause != "prompt":
        return printable(f"{cause}: {place}" if len(places) == 1 and place else cause)
    one, _, other = HASH.sub("", min(templates)).partition(" → ")
    if one and len(templates) == 1:
        cause = f"template {one} → {other}" if one != other else f"template {one} with another text"
    return printable(f"{cause}, first difference at {place}" if "byte " in min(places) else cause)


def count_lines(found: Explanation, a: str, b: str) -> Iterator[str]:
    """Yield how many rows were compared, how many differ, and how many were not compared, and why."""
    yield f"{found.rows} rows in both runs, {len(found.found)} with another answer or score"
    left_out = (
        (found.only_a, "row", f"only in {printable(a)}"),
        (found.only_b, "row", f"only in {printable(b)}"),
        (found.ambiguous, "id", "that several rows of a run have: these rows are not compared"),
        (found.uncertain, "row", f"of {printable(a)} have no certain partner: they are not compared"),
        (found.duplicates, "row", "whose text a later row of the run has: only that row is compared"),
        (found.rows - len(found.changes), "row", "that one harness has not scored: no change of the score is counted"),
    )
    yield from [f"{counted(number, noun)} {text}" for number, noun, text in left_out if number]
    if partly := sum([not one.recorded for one in found.found]):
        yield f"{partly} of these rows are not recorded in both runs, so prompts, parameters and texts may be unknown"


def change_lines(found: Explanation) -> Iterator[str]:
    """Yield the change of the score, and the test of it."""
    if (scores := found.scores()) is not None:
        whole = found.difference()
        is_part = found.only_a or found.only_b or found.ambiguous or found.uncertain or found.duplicates
        both = " of the rows in both runs" if is_part else ""
        ends = f"from {scores[0]:.3f} to {scores[1]:.3f}"
        yield f"the score{both} changed by {whole.mean:+.3f} ({whole.low:+.3f} to {whole.high:+.3f}), {ends}"
        if (test := found.mcnemar()) is not None:
            p = f"p {test['p']:.3g}" if test["p"] else "p below 1e-300"
            yield f"{test['fell']} rows fell and {test['rose']} rose: {p} (exact McNemar test)"


def kind_lines(found: Explanation) -> Iterator[str]:
    """Yield the numbers of rows by the kinds of first differences, and what a near tie is."""
    for cause in REMARKS_OF:
        if remarks := found.remarks(cause):
            yield f"{cause}: {', '.join([f'{number} {kind}' for kind, number in remarks.items()])}"
    if found.remarks(SAMPLED).keys() & {NEAR_TIE, WIDE_GAP}:
        yield f"a near tie is a gap of at most {2 * found.floor:.3f}, twice the floor (--floor RUN measures it)"


def target_lines(found: Explanation) -> Iterator[str]:
    """Yield a line for each change of the name of a target."""
    for labels, number in found.targets.most_common():
        yield f"{number} rows: the target's name differs (no cause): {printable(labels)}"


def proof_lines(proof: Proof, found: Explanation) -> Iterator[str]:
    """Yield the lines of a proof of the differences ``found``."""
    head = ("returned minus control", "rows sent", "rows that differ", "score" if proof.score else "answers of A")
    table = []
    for one in proof.effects():
        low, high = one.effect.low, one.effect.high
        value = f"{one.effect.mean:+.3f} ({low:+.3f} to {high:+.3f})" if one.effect.rows else "no answer"
        table.append((one.part, str(one.effect.rows), str(one.present), value))
    yield from format_table([head, *table])
    controls = sum([not part for _, part in proof.answers])
    yield f"{proof.reproduced} of {controls} controls have the recorded answer of B"
    for cause, (rows, _) in found.by_cause().items():
        if cause not in PROVABLE:
            yield f"not provable: {rows} rows whose first difference is {cause}"
    if proof.left_out:
        yield f"left out: {proof.left_out} rows that are not fully recorded, or have tools, a schema or several calls"
    if proof.failed:
        codes = ", ".join([f"{code} ({number})" for code, number in proof.failed.items()])
        yield f"failed calls, whose rows do not count: {codes}"


def difference_lines(one: RowDifference) -> Iterator[str]:
    """Yield a line for each difference of a row."""
    for number, (cause, text) in enumerate(one.differences.items()):
        yield f"  {'also differs: ' if number else ''}{cause}: {printable(text)}"
    if not one.differences:
        yield "  no recorded fact differs; record both runs to compare more"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _mean(mean: Mean) -> str:
    return f"{mean.mean:.3f} ({mean.low:.3f} to {mean.high:.3f})"
