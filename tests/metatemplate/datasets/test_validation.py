"""Mistakes in prompt files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from metatemplate.datasets.validation import parse_prompt
from metatemplate.files.problems import SpecError

TABLES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))
MISTAKES, SAMPLES = TABLES["mistakes"], TABLES["samples"]


@pytest.mark.parametrize("case", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_its_place(case: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        parse_prompt(case["file"], name="p", rows=lambda name: ())
    assert case["says"] in caught.value.message


def test_rows_come_from_a_file_too() -> None:
    file, rows = {**SAMPLES["ice"], "train_file": "rows.jsonl"}, tuple(SAMPLES["rows"])
    file |= {"retriever": {"kind": "fixed", "ids": [1]}}
    file |= {"prompt_template": {"template": "</E>{a}", "ice_token": "</E>"}}
    assert parse_prompt(file, name="p", rows=lambda name: rows if name == "rows.jsonl" else ()).train == rows


@pytest.mark.parametrize("columns", ["anything question", " anything  question ", ["anything", "question"]])
def test_input_columns_in_one_text_are_split_at_blanks(columns: Any) -> None:
    file = {"prompt_template": {"template": "{anything}: {question}"}, "input_columns": columns}
    assert parse_prompt(file, name="p", rows=lambda name: ()).input_columns == ("anything", "question")
