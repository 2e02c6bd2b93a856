"""``gateway with`` around unmodified harnesses. AISBench takes as long as the others, and has a module of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evaluate.harnesses.differences import DIFFERENCES, assert_scored_and_explained


@pytest.mark.parametrize("name", ["few-shot examples", "a system text", "max_tokens"])
def test_the_report_has_the_score_of_the_harness_and_why_names_what_changed(name: str, tmp_path: Path) -> None:
    assert_scored_and_explained(DIFFERENCES[name], tmp_path)
