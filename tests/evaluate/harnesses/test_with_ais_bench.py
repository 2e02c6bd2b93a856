"""``gateway with`` around AISBench, unmodified."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evaluate.harnesses.differences import SUMS, WRONG, scored_run


def test_the_report_has_the_score_of_ais_bench(tmp_path: Path) -> None:
    assert scored_run("ais-bench-chat", tmp_path).own == pytest.approx((SUMS - WRONG) / SUMS, abs=1e-4)
