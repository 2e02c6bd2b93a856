"""One seeded difference for each harness, in a setting of its own, and what ``gateway why`` must name first."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.cli.command import command
from tests.support.harnesses.around import run_with
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
    edit: tuple[str, str] = ("", "")
    """A text of the client's first file, and the text in its place."""


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
    "stops": Difference(
        client="ais-bench-chat",
        cause="parameters",
        shown="stop ['<eob>'] → ['<eob>', '1', '2', '3', '4']",
        changed=5,
        edit=('{"temperature": 0}', '{"temperature": 0, "stop": ["1", "2", "3", "4"]}'),
    ),
}


def assert_scored_and_explained(difference: Difference, folder: Path) -> None:
    """Run the harness twice: both reports have its own score, and the difference comes first in all changed rows."""
    client, programs = replace(ROWS[difference.client], sums=SUMS), installed_bin()
    monday = run_with(client, programs, folder / "monday", wrong=WRONG)
    tuesday = run_with(client, programs, folder / "tuesday", *difference.more, wrong=WRONG, edit=difference.edit)
    assert monday.own == pytest.approx((SUMS - WRONG) / SUMS, abs=1e-4)
    assert tuesday.own < monday.own, tuesday.output
    for run in (monday, tuesday):
        score, rows = run.reported
        assert (score, rows) == (round(run.own, 3), SUMS), run.output
    why = ("why", str(monday.recording), str(tuesday.recording))
    done = command(folder, *why, "--scores", str(monday.scores), "--scores", str(tuesday.scores), "--json")
    found = json.loads(done.stdout)
    assert (found["rows"], found["differing"], list(found["causes"])) == (SUMS, difference.changed, [difference.cause])
    assert {row["differences"][difference.cause] for row in found["found"]} == {difference.shown}
