"""The report of a run has everything that ``gateway report`` prints."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.score_options import ScoreOptions
from gateway.evaluate.analysis.report import GROUPS
from gateway.viewer.page import PageRequest
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.runs.files import RunFiles
from gateway.viewer.runs.pages import RunPages
from gateway.viewer.templating import render
from tests.cli import test_scores
from tests.cli.command import command
from tests.viewer.test_why import Words

score_folder = test_scores.folder
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "no score": ("a.jsonl", ()),
    "a judge": ("a.jsonl", ("--score", "exact")),
    "no whole row": ("b.jsonl", ("--score", "exact")),
    "a harness": (test_scores.A, ("--scores", "out-a")),
    "a harness, calls without a row": (test_scores.B, ("--scores", "out-b")),
    "own lines, calls without a line": ("b.jsonl", ("--scores", "own.jsonl")),
}


@pytest.mark.parametrize("case", CASES)
def test_the_page_has_every_number_and_line_of_the_terminal(case: str, score_folder: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(score_folder)
    run, options = CASES[case]
    ended = command(score_folder, "report", run, *options)
    assert ended.returncode == 0
    scores = [Path(options[1]) if "--scores" in options else None]
    given = ScoreOptions(score=options[1] if "--score" in options else None)
    source, asked = RunFiles([run], scores, Path("gateway.yaml"), given), {"run": run}
    page = asyncio.run(RunPages(source, PageThreads()).page(PageRequest("/runs/report", asked, None, "/viewer")))
    request = PageRequest("/runs/report", asked, None, "/viewer")
    facts = {"root": "/viewer", "asked": request, "visitor": request.visitor}
    words = Words(render(page.template, {**page.values, **facts}).decode()).text
    lines = [line for line in (ended.stdout + ended.stderr).decode().splitlines() if line]
    assert [line for line in lines if not any(part in words for part in on_the_page(line))] == []
    assert ("Score (" in words) == bool(options)


def on_the_page(line: str) -> list[str]:
    """How the page may write a line of the terminal."""
    line = " ".join(line.removeprefix("note: ").split())
    if found := re.fullmatch(r"(score) (\(.*\)): (\S+) \((.*)\) over all (\d+) rows", line):
        return [f"Score {found[2]} {found[3]} {found[4]}, 95 % interval"]
    if found := re.fullmatch(r"(\S+ \(.*\)) over the (\d+) whole answers only \((.*)\)", line):
        return [f"Whole answers only: {found[1]} over {found[2]} rows. {found[3].capitalize()}."]
    if found := re.fullmatch(r"all (\d+) \S+%", line):
        return [f"{found[1]} rows"]
    if found := re.fullmatch(r"(.+?)((?: \d+)+)", line):  # of a table of a group, which has the sum too on the page
        return [f" {found[1]} {sum(map(int, found[2].split()))}{found[2]} "]
    heads = [f" {name.capitalize()} Rows{line.removeprefix(name)} " for name in GROUPS]
    return [line.capitalize(), line.title(), f" {line.removesuffix('%')} % ", line, *heads]
