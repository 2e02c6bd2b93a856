"""The picture of a render is what the script draws, and the captions of the page Why have the numbers of its runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.command import command
from tests.docs.picture import MESSAGES, PICTURE, draw
from tests.support.serving import ROOT, write_files
from tests.viewer.browser.world import FILES, open_config, write_runs


def test_the_picture_is_that_of_a_real_render() -> None:
    drawn = draw()
    assert all(message["content"] in drawn for message in MESSAGES)
    assert PICTURE.read_text(encoding="utf-8") == drawn, "python -m tests.docs.picture"


@pytest.fixture(scope="module")
def why(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What ``gateway why`` prints for the runs of the picture."""
    folder = tmp_path_factory.mktemp("runs")
    write_files(folder, {"gateway.yaml": open_config(), **FILES})
    write_runs(folder, "monday", "tuesday")
    return command(folder, "why", "monday.jsonl", "tuesday.jsonl", "--score", "exact").stdout.decode()


@pytest.mark.parametrize("page", ["README.md", "docs/viewer.md"])
def test_the_caption_of_the_page_why_has_the_numbers_of_its_runs(page: str, why: str) -> None:
    (caption,) = re.findall(r"!\[The page Why: (.*?)\]", Path(ROOT, page).read_text(encoding="utf-8"))
    ((change, before, after),) = re.findall(r"the score changed by (\S+) .*, from (\S+) to (\S+)", why)
    ((rows, differing),) = re.findall(r"^(\d+) rows in both runs, (\d+) with another answer or score", why)
    assert re.findall(r"^prompt +(\d+) +(\S+)$", why, re.MULTILINE) == [(differing, change)]  # no other cause
    assert re.findall(r"[-+]?\d+(?:\.\d+)?", caption) == [before, after, change, differing, rows]


def test_every_picture_of_the_documentation_is_shown_and_small() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in Path(ROOT, "docs").rglob("*.md"))
    for picture in Path(ROOT, "docs/images").iterdir():
        assert f"images/{picture.name})" in shown
        assert picture.stat().st_size < 150_000, f"{picture.name} has {picture.stat().st_size} bytes"
