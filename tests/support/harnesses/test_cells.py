"""Which outcomes of a run are good, and how the table shows them."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.support.harnesses.cells import Cell, markdown
from tests.support.harnesses.engines import COLUMNS
from tests.support.harnesses.rows import ROWS
from tests.support.harnesses.sums import rows

CELL = partial(Cell, client="lm-eval-chat", engine="embedded", seconds=1.0)
LACKING = partial(CELL, expected=("upstream_ignored_parameter",))

CELLS = {  # name: (cell, good, text)
    "all right": (CELL(score=1.0), True, "1.00"),
    "two wrong": (CELL(score=0.98), True, "0.98"),
    "three wrong": (CELL(score=0.97), False, "**0.97**"),
    "no score": (CELL(), False, "**failed**"),
    "a refusal": (CELL(score=1.0, refusals={"overloaded": 1}), False, "**1.00** `overloaded`"),
    "an expected refusal": (
        LACKING(refusals={"upstream_ignored_parameter": 4}),
        True,
        "refused: `upstream_ignored_parameter`",
    ),
    "another refusal": (LACKING(refusals={"overloaded": 4}), False, "**failed** `overloaded`"),
    "a score where a refusal is expected": (LACKING(score=1.0), False, "**1.00**"),
    "a wrong template, guessed": (CELL(score=0.26, wrong_template=True), True, "0.26"),
    "a wrong template, all right": (CELL(score=1.0, wrong_template=True), False, "**1.00**"),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_is_good_or_shown_in_bold(name: str) -> None:
    cell, good, text = CELLS[name]
    assert (cell.good, cell.shown()) == (good, text)


def test_the_table_links_each_client_to_its_guide() -> None:
    table = markdown([CELL(score=1.0)], [ROWS["lm-eval-chat"]], [COLUMNS["embedded"], COLUMNS["numpy"]])
    assert table.splitlines() == [
        "| Client | embedded | numpy server |",
        "|---|---|---|",
        "| [lm-eval, chat](harnesses/lm-eval.md) | 1.00 | not run |",
    ]


def test_the_right_sum_is_one_of_four_different_choices_in_every_place() -> None:
    found = [json.loads(line) for line in rows(100).splitlines()]
    assert all(len(set(row["choices"])) == 4 for row in found)
    assert all(row["choices"][row["gold"]] == row["answer"] for row in found)
    assert {row["gold"] for row in found} == {0, 1, 2, 3}
