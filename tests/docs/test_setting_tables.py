"""The tables of settings have every setting, as its class describes it."""

from __future__ import annotations

import re

from gateway.config.schema.json_schema import json_schema, settings
from gateway.config.schema.settings import FILES
from tests.docs.setting_tables import PAGE, written


def test_the_tables_are_those_of_the_classes() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "python -m tests.docs.setting_tables"


def test_every_setting_has_its_line_and_no_other_has() -> None:
    shown = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(shown) == sorted([name for file in FILES for name, _ in settings(json_schema(file))])
