"""The index of the fault matrix is complete and true."""

from __future__ import annotations

import importlib
import re
from functools import cache

import pytest

from tests.reliability.matrix import FIGURE_TESTS, NO_TEST, TESTS, rows
from tests.support.serving import ROOT

PAGE = (ROOT / "docs/spec/reliability.md").read_text(encoding="utf-8")
DOCUMENTED = re.findall(r"^\| ([A-H][0-9]{2}) \|", PAGE, re.MULTILINE)
SHOWN = {**TESTS, **FIGURE_TESTS}


def test_every_row_has_tests_or_a_reason() -> None:
    assert sorted([*TESTS, *NO_TEST]) == rows()


def test_every_row_of_the_page_has_tests() -> None:
    assert len(DOCUMENTED) > 100
    assert [row for row in DOCUMENTED if row not in TESTS] == []


@cache
def cases(path: str, name: str) -> tuple[str, ...]:
    """The ids of a test's cases, and the values without ids, as text."""
    function = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), name)
    found: list[object] = []
    for mark in getattr(function, "pytestmark", ()):
        if mark.name == "parametrize":
            ids = mark.kwargs.get("ids", mark.args[1])
            found += map(ids, mark.args[1]) if callable(ids) else ids
    return tuple(map(str, found))


@pytest.mark.parametrize("name", SHOWN)
def test_the_tests_of_a_row_exist(name: str) -> None:
    assert SHOWN[name]
    for reference in SHOWN[name]:
        path, _, rest = reference.partition("::")
        function, _, text = rest.partition("[")
        found = cases(path, function)
        assert not text or any(text in case for case in found), reference
