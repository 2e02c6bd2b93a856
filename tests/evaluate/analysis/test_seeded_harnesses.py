"""``gateway why --match question`` finds what was changed between the requests of two harnesses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.command import command
from tests.evaluate.analysis.seeded_harnesses import CHANGES, HarnessRuns, harness_runs

ROWS = 20


@pytest.fixture(scope="module")
def runs() -> Iterator[HarnessRuns]:
    with harness_runs(ROWS) as made:
        made.run("base", "lm-eval")
        yield made


def test_equal_requests_of_two_harnesses_have_equal_answers(runs: HarnessRuns) -> None:
    runs.run("equal", "evalscope")
    assert (runs.why("base", "equal", None).rows, runs.why("base", "equal", None).changed) == (len(runs.questions), 0)


@pytest.mark.parametrize("name", ["system text", "examples in the text", "answer prefix", "max_tokens", "stop"])
def test_a_change_in_the_requests_of_a_harness_is_found_with_its_kind(runs: HarnessRuns, name: str) -> None:
    runs.run(name.replace(" ", "-"), "evalscope", CHANGES[name].make)
    found = runs.why("base", name.replace(" ", "-"), CHANGES[name])
    assert (found.rows, found.right) == (len(runs.questions), 1)
    assert found.changed >= ROWS / 2


def test_a_kind_is_a_cause_to_fail_on(runs: HarnessRuns) -> None:
    runs.run("short", "lm-eval", CHANGES["max_tokens"].make)
    compared = ("why", "base", "short", "--match", "question", "--fail-on")
    codes = {kind: command(runs.folder, *compared, kind).returncode for kind in ("max_tokens", "stop", "max")}
    assert codes == {"max_tokens": 1, "stop": 0, "max": 2}


def test_runs_without_a_certain_pair_are_an_error(runs: HarnessRuns) -> None:
    runs.run("alone", "lm-eval", lambda request: {**request, "messages": [{"role": "user", "content": "Who?"}]})
    done = command(runs.folder, "why", "base", "alone", "--match", "question")
    assert (done.returncode, b"no row of one run has a certain partner" in done.stderr) == (1, True)
    assert b"rows only in base" in done.stdout
    by_id = command(runs.folder, "why", "base", "alone")
    assert (by_id.returncode, b"--match question pairs the rows" in by_id.stderr) == (1, True)
