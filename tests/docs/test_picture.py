"""The picture of a render is what the script draws, and the captions of the page Why have the numbers of its runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.command import command
from tests.docs.picture import MESSAGES, PICTURE, draw
from tests.support.serving import ROOT
from tests.viewer.test_browser import write_two_runs


def test_the_picture_is_that_of_a_real_render() -> None:
    drawn = draw()
    assert all(message["content"] in drawn for message in MESSAGES)
    assert PICTURE.read_text(encoding="utf-8") == drawn, "python -m tests.docs.picture"


@pytest.fixture(scope="module")
def why(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What ``gateway why`` prints for the runs of the picture."""
    folder = tmp_path_factory.mktemp("runs")
    write_two_runs(folder)
    return command(folder, "why", "monday.jsonl", "tuesday.jsonl", "--score", "exact").stdout.decode()


@pytest.mark.parametrize("page", ["README.md", "docs/viewer.md"])
def test_the_caption_of_the_page_why_has_the_numbers_of_its_runs(page: str, why: str) -> None:
    (caption,) = re.findall(r"!\[The page Why: (.*?)\]", Path(ROOT, page).read_text(encoding="utf-8"))
    (change,) = re.findall(r"the score changed by (\S+)", why)
    (questions,) = re.findall(r"^dataset row .* (\S+)$", why, re.MULTILINE)
    (parameters,) = re.findall(r"^parameters .* (\S+)$", why, re.MULTILINE)
    assert re.findall(r"[-+]\d\.\d+", caption) == [change, questions, parameters]
