"""The shared environment has what the rows of the table and docs/in-a-harness.md have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.harnesses.rows import ROWS
from tests.support.serving import ROOT

HERE = Path(__file__).parent
REQUIREMENTS, VERSIONS = (
    (HERE / name).read_text(encoding="utf-8").splitlines() for name in ("requirements.txt", "versions.txt")
)


@pytest.mark.parametrize("client", ["lm-eval-chat", "evalscope", "inspect-ai", "ais-bench-chat"])
def test_a_harness_has_the_packages_of_its_row(client: str) -> None:
    assert set(ROWS[client].packages.names) <= set(REQUIREMENTS)


def test_the_page_about_lm_eval_has_the_same_version() -> None:
    page = (ROOT / "docs" / "in-a-harness.md").read_text(encoding="utf-8")
    assert [line for line in VERSIONS if line.startswith("lm-eval==") and f"pip install {line} " in page]
