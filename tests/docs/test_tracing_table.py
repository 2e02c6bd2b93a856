"""The tables of docs/tracing.md have the attributes of the spans, in their order."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from gateway.calls.tracing import conventions
from tests.support.serving import ROOT

PAGE = (ROOT / "docs/tracing.md").read_text(encoding="utf-8")
TABLES: dict[str, Callable[..., Any]] = {"call": conventions.of_call, "attempt": conventions.of_attempt}
NAME = re.compile(r'"((?:gen_ai|server|http|error|meta_gateway)\.[a-z0-9_.]+)":')
"""Matches the name of an attribute in the table of the code."""


@pytest.mark.parametrize("table", TABLES)
def test_the_page_lists_the_attributes_of_the_spans(table: str) -> None:
    rows = re.findall(rf"^\| Attribute of an? {table} .*\n\|---.*\n((?:\|.*\n)*)", PAGE, re.MULTILINE)
    listed = [name for line in rows[0].splitlines() for name in re.findall(r"`([^`]+)`", line.split("|")[1])]
    assert listed == NAME.findall(inspect.getsource(TABLES[table]))


def test_the_page_names_the_version_of_the_conventions() -> None:
    assert f"`{conventions.SCHEMA_URL}`" in PAGE
