"""Reports and comparisons of runs as lines of text."""

from __future__ import annotations

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
    yield f"{found.rows} rows in both runs, {len(found.found)} with another answer or score"
    unmatched = {f"only in {a}": found.only_a, f"only in {b}": found.only_b}
    yield from [f"{number} rows {printable(text)}" for text, number in unmatched.items() if number]
    if found.ambiguous:
        yield f"{counted(found.ambiguous, 'id')} that several rows of a run have: these rows are not compared"
    if found.uncertain:
        yield f"{counted(found.uncertain, 'row')} of {a} have no certain partner: they are not compared"
    if found.duplicates:
        yield f"{counted(found.duplicates, 'row')} whose text a later row of the run has: only that row is compared"
    if unscored := found.rows - len(found.changes):
        yield f"{counted(unscored, 'row')} that one harness has not scored: no change of the score is counted"
    if partly := sum([not one.recorded for one in found.found]):
        yield f"{partly} of these rows are not recorded in both runs, so prompts, parameters and texts may be unknown"
    if not found.found:
        return
    yield ""
    head = ("rows by first difference", "rows", "score") if found.scored else ("rows by first difference", "rows")
    table = [(cause, str(rows), f"{part:+.3f}") for cause, (rows, part) in found.by_cause().items()]
    yield from format_table([head, *[row[: len(head)] for row in table]])
    if found.scored:
        whole = found.difference()
        is_part = found.only_a or found.only_b or found.ambiguous or found.uncertain or found.duplicates
        both = " of the rows in both runs" if is_part else ""
        yield f"the score{both} changed by {whole.mean:+.3f} ({whole.low:+.3f} to {whole.high:+.3f})"
        if (test := found.mcnemar()) is not None:
            p = f"p {test['p']:.3g}" if test["p"] else "p below 1e-300"
            yield f"{test['fell']} rows fell and {test['rose']} rose: {p} (exact McNemar test)"
    for cause in REMARKS_OF:
        if remarks := found.remarks(cause):
            yield f"{cause}: {', '.join([f'{number} {kind}' for kind, number in remarks.items()])}"
    if found.remarks(SAMPLED).keys() & {NEAR_TIE, WIDE_GAP}:
        yield f"a near tie is a gap of at most {2 * found.floor:.3f}, twice the floor (--floor RUN measures it)"
    for cause in found.by_cause():
        one = next(one for one in found.found if one.cause == cause)
        yield ""
        yield f"{cause}, for example row {printable(one.custom_id)}:"
        yield from difference_lines(one)
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
