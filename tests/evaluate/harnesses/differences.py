"""One seeded difference for three harnesses, in a setting of its own, and what ``gateway why`` must name first."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.cli.command import command
from tests.support.harnesses.around import Run, run_with
from tests.support.harnesses.environment import installed_bin
from tests.support.harnesses.rows import ROWS

SUMS, WRONG = 6, 2
SYSTEM = "Answer with one number. " * 8
"""A system text after which the demo model answers with other numbers."""
QUESTIONS = {"local_path": ".", "subset_list": ["sums"]}


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs in the second run of a client, and how ``gateway why`` names it."""

    client: str
    cause: str
    shown: str
    changed: int
    """The number of rows with another answer."""
    more: tuple[str, ...] = ()
    """Further arguments of the command; the harness takes the last of two."""


DIFFERENCES = {
    "few-shot examples": Difference(
        client="lm-eval-chat",
        cause="dataset row",
        shown="text before the question",
        changed=3,
        more=("--num_fewshot", "2", "--fewshot_as_multiturn", "False"),
    ),
    "a system text": Difference(
        client="evalscope",
        cause="dataset row",
        shown="system text",
        changed=6,
        more=("--dataset-args", json.dumps({"general_qa": {**QUESTIONS, "system_prompt": SYSTEM}})),
    ),
    "max_tokens": Difference(
        client="inspect-ai",
        cause="parameters",
        shown="max_tokens 16 → 1",
        changed=6,
        more=("--max-tokens", "1"),
    ),
}


def scored_run(client: str, folder: Path, *more: str) -> Run:
    """Run a harness once. The report must have its own score, over all rows."""
    run = run_with(replace(ROWS[client], sums=SUMS), installed_bin(), folder, *more, wrong=WRONG)
    assert run.reported == (round(run.own, 3), SUMS), run.output
    return run


def assert_scored_and_explained(difference: Difference, folder: Path) -> None:
    """Run the harness twice: both reports have its own score, and the difference comes first in all changed rows."""
    monday = scored_run(difference.client, folder / "monday")
    tuesday = scored_run(difference.client, folder / "tuesday", *difference.more)
    assert monday.own == pytest.approx((SUMS - WRONG) / SUMS, abs=1e-4)
    assert tuesday.own < monday.own, tuesday.output
    why = ("why", str(monday.recording), str(tuesday.recording))
    done = command(folder, *why, "--scores", str(monday.scores), "--scores", str(tuesday.scores), "--json")
    found = json.loads(done.stdout)
    assert (found["rows"], found["differing"], list(found["causes"])) == (SUMS, difference.changed, [difference.cause])
    assert {row["differences"][difference.cause] for row in found["found"]} == {difference.shown}
