"""Explain why the answers of two runs differ: the first difference of each row, and what it is worth.

A and B are output files of gateway run, files of recordings, or names of runs in the recordings of gateway.yaml. Rows
match by their custom_id, else by the hash of the client's request; with --match question by the text of the question,
which two harnesses ask in two ways. Each row whose answer or score differs counts for its first difference, in the
order in which one may cause the next: scoring (an equal answer with another score), dataset row, prompt, prompt ids,
parameters, route, cut, reading, sampled tokens. So the parts sum to the difference of the scores.

--prove sends requests to a model of gateway.yaml: requests of run B, each once unchanged (the control) and once for
each part (prompt, prompt ids, parameters, stops) that differs, with this part taken from run A. The answers say what
each part returns of the score. The number of calls is printed first.

Exit code 0, or 1 if a cause of --fail-on was found, or if the runs have no row in common.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.completion import complete_model
from gateway.cli.options import (
    CommandError,
    argument,
    config_option,
    flag,
    load_snapshot,
    option,
    parameter,
    print_note,
    takes,
    verb,
)
from gateway.cli.score_options import ScoreOptions
from metatemplate.values.words import suggest

if TYPE_CHECKING:
    from gateway.config.snapshot import Snapshot
    from gateway.evaluate.analysis.prove import Proof
    from gateway.evaluate.analysis.rows import OpenRuns
    from gateway.evaluate.analysis.why import Explanation

EXAMPLES = """Examples:
  gateway why monday.jsonl tuesday.jsonl --score exact
  gateway why monday.sqlite tuesday.sqlite
  gateway why lm-eval.sqlite evalscope.sqlite --match question
  gateway why monday.sqlite tuesday.sqlite --row sum-1      one row, with all its differences
  gateway why monday tuesday --scores out1 --scores out2    the scores of a harness
  gateway why a.jsonl b.jsonl --fail-on prompt,parameters   for CI
  gateway why a.jsonl b.jsonl --json | jq .causes
  gateway why a.jsonl b.jsonl --score exact --prove demo    send up to 200 rows again, with parts of A
  gateway why a.jsonl b.jsonl --prove demo/1 --prove-rows 50
"""
NO_COMMON_ROW = (
    "no row of the two runs has an equal id or an equal request, so nothing was compared; give both runs the same "
    "custom_id for each row, or as a client of a gateway the same x-gateway-row; --match question pairs the rows of "
    "two harnesses by their texts"
)
NO_PAIR = "no row of one run has a certain partner in the other run, so nothing was compared; --json lists the rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyOptions(ScoreOptions):
    """The options of ``gateway why``."""

    a: str = argument(metavar="A")
    """the first run"""
    b: str = argument(metavar="B")
    """the second run"""
    match: str = option("id|question", type=click.Choice(["id", "question"]), default="id")
    """how rows of the two runs match: by id or request, or by the text of the question"""
    row: str | None = option("ID")
    """show one row, with all its differences"""
    floor: str | None = option("RUN")
    """a second run with the settings of A, which shows how much log probabilities differ by themselves; without it a
    default"""
    fail_on: str = option("CAUSE,…", default="")
    """end with exit code 1 if one of these causes or kinds is found"""
    prove: str | None = option("TARGET", shell_complete=complete_model)
    """send requests of B with parts of A to a model or target, such as demo or demo/0"""
    prove_rows: int = option("N", type=click.IntRange(min=1), default=200)
    """the maximum number of rows that --prove sends for each part"""
    config: Path = parameter(config_option)
    as_json: bool = flag("--json")
    """print JSON instead of tables"""


@verb(__doc__, EXAMPLES)
@takes(WhyOptions)
def command(options: WhyOptions) -> int:
    """Print the causes, the rows of each, and the difference of the scores."""
    from gateway.evaluate.analysis.prove import Proof
    from gateway.evaluate.analysis.why import MATCHES, REMARKS_OF, ROW_CAUSES, explain
    from gateway.evaluate.reporting.lines import difference_lines, proof_lines, why_lines
    from gateway.evaluate.reporting.proof import only_target
    from gateway.evaluate.reporting.source import read_scored_runs, reading, row_score

    a, b, row, prove, config = options.a, options.b, options.row, options.prove, options.config
    if row is not None and prove is not None:
        raise CommandError("--row and --prove cannot be used together; remove one of them")
    target = None if prove is None else only_target(load_snapshot(config), prove)
    wanted = {name.strip() for name in options.fail_on.split(",") if name.strip()}
    known = [*ROW_CAUSES, *[kind for kinds in REMARKS_OF.values() for kind in kinds]]
    if unknown := wanted - set(known):
        raise CommandError(f"--fail-on {min(unknown)}: use {', '.join(known)}")
    no_harness = None if options.scores else options.score  # a harness does not score the answers of a proof
    proof = Proof(options.prove_rows, row_score(no_harness, options.answer))
    with reading() as files:
        one, other = read_scored_runs(files, [a, b], config, options)
        visit = proof.visit if target is not None else lambda a, b: None
        found = explain(one, other, _floor(files, a, options.floor, config), visit, MATCHES[options.match])
    if not found.rows:
        print(json.dumps(found.as_json(), indent=2) if options.as_json else "\n".join(why_lines(found, a, b)))
        raise CommandError(NO_COMMON_ROW if options.match == "id" else NO_PAIR, 1)
    if target is not None:
        _prove(proof, a, b, target, config)
    if options.as_json:
        print(json.dumps({**found.as_json(), **({} if prove is None else {"proof": proof.as_json()})}, indent=2))
    elif row is not None:
        chosen = next((one for one in found.found if one.custom_id == row), None)
        if chosen is None:
            raise CommandError(_not_different(row, found, a, b))
        print(*difference_lines(chosen), sep="\n")
    else:
        print(*why_lines(found, a, b), sep="\n")
        if prove is not None:
            print("", *proof_lines(proof, found), sep="\n")
    return int(bool(wanted & (found.by_cause().keys() | found.remarks().keys())))


def _not_different(row: str, found: Explanation, a: str, b: str) -> str:
    """Return why a row is not among the rows that differ."""
    if row in found.same:
        return f"row {row}: both runs gave the same answer; gateway why {a} {b} lists the rows that differ"
    for run, ids in zip((a, b), found.unmatched.values(), strict=True):
        if row in ids:
            return f"row {row} of {run} has no partner in the other run"
    known = chain(found.same, [one.custom_id for one in found.found], *found.unmatched.values())
    return f"--row {row}: no run has this row{suggest(row, known)}"


def _prove(proof: Proof, a: str, b: str, snapshot: Snapshot, config: Path) -> None:
    """Print the number of calls, and send them to the only model of the snapshot."""
    from gateway.evaluate.reporting.proof import send_proof
    from gateway.evaluate.reporting.source import reading, run_recording

    with reading():
        calls = proof.calls(run_recording(a, config), run_recording(b, config))
    controls = sum([not call.part for call in calls])
    (model,) = snapshot.models
    print_note(f"--prove sends {len(calls)} calls to {model}: {controls} controls, and the others with parts of A")
    if calls:
        send_proof(proof, calls, snapshot, config)


def _floor(files: OpenRuns, a: str, again: str | None, config: Path) -> float:
    """Return the floor of the log probabilities. ``again``: a second run with the settings of ``a``; None: a default.

    Raises ``CommandError`` if the two runs have no log probabilities of the same tokens.
    """
    from gateway.evaluate.analysis.sampling import DEFAULT_FLOOR
    from gateway.evaluate.analysis.why import measured_floor
    from gateway.evaluate.reporting.source import read_run

    if again is None:
        return DEFAULT_FLOOR
    shift = measured_floor(read_run(files, a, config), read_run(files, again, config))
    if shift is None:
        raise CommandError(
            f"--floor {again}: {a} and this run have no log probabilities of the same tokens; "
            "run both with gateway run --evidence"
        )
    return shift
