"""``gateway why`` finds what was changed between two runs of ``gateway run`` on a loopback engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.evaluate.analysis.seeded_causes import NOTHING, Seeds, one_cause, seeds_on_engine, verdict

ROWS = 40


@pytest.fixture(scope="module")
def seeds() -> Iterator[Seeds]:
    with seeds_on_engine(ROWS) as made:
        yield made


def test_two_equal_runs_have_no_flipped_row(seeds: Seeds) -> None:
    found = verdict(seeds, NOTHING, seeds.run(NOTHING, "-again"))
    assert (found.rows, found.flipped, found.sums) == (ROWS, 0, True)


@pytest.mark.parametrize("cause", ["removed stop", "cache", "parser", "ignored temperature", "other weights"])
def test_a_seeded_cause_is_found(seeds: Seeds, cause: str) -> None:
    found = one_cause(seeds, cause)
    assert found.flipped >= ROWS / 10
    assert (found.first, found.listed, found.sums, found.wrong) == (1, 1, True, [])
    assert found.remarked > 0.8


def test_two_causes_of_disjoint_rows_are_told_apart(seeds: Seeds) -> None:
    pair = frozenset({"order of examples", "retry"})
    other = seeds.run(pair)
    found = verdict(seeds, pair, other)
    assert (found.first, found.listed, found.sums, found.wrong) == (1, 1, True, [])
    causes = seeds.why(other)["causes"]
    assert causes.keys() == {"dataset row", "route"}
    assert sum(part["rows"] for part in causes.values()) == found.flipped
