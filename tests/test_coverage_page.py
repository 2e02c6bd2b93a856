"""``docs/coverage.md``: every test that it names exists, and its counts are those of its rows."""

from __future__ import annotations

import ast
import json
import re
from functools import cache

import pytest

from tests.support.serving import ROOT

PAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
"""(number, statement, what shows it) of each row."""
CASES = {
    json.loads(line)["id"]
    for file in (ROOT / "tests" / "conformance").glob("*.jsonl")
    for line in file.read_text(encoding="utf-8").rstrip("\n").split("\n")
}
REFERENCE = re.compile(r"`(tests/[^`]+|(?:d\d|q|lz|lz\d+)-[^`]+)`")


@cache
def functions_of(path: str) -> frozenset[str]:
    """The names of the test functions in a file."""
    nodes = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_statement_is_shown_by_tests_that_exist(row: tuple[str, str, str]) -> None:
    names = REFERENCE.findall(row[2])
    assert names or row[2].startswith("Not")
    for name in names:
        path, _, function = name.partition("::")
        assert function in functions_of(path) if function else name in CASES, name


def test_the_counts_are_those_of_the_rows() -> None:
    assert [number for number, _, _ in ROWS] == [str(number) for number in range(1, len(ROWS) + 1)]
    shown = [row for row in ROWS if not row[2].startswith("Not")]
    assert f"{len(shown)} of {len(ROWS)} statements work" in PAGE
