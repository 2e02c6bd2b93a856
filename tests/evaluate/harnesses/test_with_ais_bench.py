"""``gateway with`` around AISBench, unmodified."""

from __future__ import annotations

from pathlib import Path

from tests.evaluate.harnesses.differences import DIFFERENCES, assert_scored_and_explained


def test_the_report_has_the_score_of_ais_bench_and_why_names_the_stops(tmp_path: Path) -> None:
    assert_scored_and_explained(DIFFERENCES["stops"], tmp_path)
