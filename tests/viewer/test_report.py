"""The report of a run has everything that ``gateway report`` prints."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.score_options import ScoreOptions
from gateway.evaluate.analysis.report import GROUPS
from gateway.evaluate.analysis.rows import RunAnswer, RunRow
from gateway.viewer.page import PageRequest
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.runs.files import RunFiles
from gateway.viewer.runs.findings import findings_of
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
    if line == "class rows share":  # the heads of the first table
        return ["Classes of answers"]
    if found := re.fullmatch(r"(score) (\(.*\)): (\S+) \((.*)\) over all (\d+) rows", line):
        return [f"Score {found[2]} {found[3]} {found[4]}, 95 % interval"]
    if found := re.fullmatch(r"(\S+ \(.*\)) over the (\d+) whole answers only \((.*)\)", line):
        return [f"Whole answers only: {found[1]} over {found[2]} rows. {found[3].capitalize()}, so"]
    if found := re.fullmatch(r"all (\d+) \S+%", line):
        return [f"{found[1]} rows"]
    if found := re.fullmatch(r"(.+?)((?: \d+)+)", line):  # of a table of a group, which has the sum too on the page
        return [f" {found[1]} {sum(map(int, found[2].split()))}{found[2]} "]
    heads = [f" {name.capitalize()} Rows{line.removeprefix(name)} " for name in GROUPS]
    return [line.capitalize(), line.title(), f" {line.removesuffix('%')} % ", line, *heads]


def rows_of(*given: tuple[str, float | None]) -> list[RunRow]:
    """Rows with the given text and score. A text of no length is an empty answer, and ``!`` is a failed row."""
    return [
        RunRow(f"row-{at}", "m", error=text.strip("1"), points=points, answers=(RunAnswer(text),))
        for at, (text, points) in enumerate(given, 1)
    ]


WORST: dict[str, tuple[list[tuple[str, float | None]], str]] = {
    "all wrong": ([("1", 0.0)] * 2, "row-1 row-2"),
    "equal and below 1": ([("1", 0.3)] * 2, "row-1 row-2"),
    "all right": ([("1", 1.0)] * 2, ""),
    "no score": ([("1", None), ("", None)], "row-2"),
    "the lowest score first": ([("1", 0.5), ("1", 1.0), ("1", 0.0)], "row-3 row-1"),
    "points up to 10": ([("1", 10.0), ("1", 9.0)], "row-2"),
    "a row that the harness has not scored": ([("1", None), ("1", 0.0)], "row-2"),
    "each class has its part": (
        [*[("1", 0.0)] * 20, *[("", 0.0)] * 20, ("!", 0.0)],
        "row-41 row-21 row-22 row-23 row-24 row-25 row-1 row-2 row-3 row-4",
    ),
}


@pytest.mark.parametrize("case", WORST)
def test_the_rows_to_look_at_first(case: str) -> None:
    given, wanted = WORST[case]
    assert " ".join([row.custom_id for row in findings_of(rows_of(*given)).worst()]) == wanted


def test_rows_are_right_or_wrong_and_in_the_order_of_their_numbers() -> None:
    found = findings_of(rows_of(*[("1", [1.0, 0.0, None][at % 3]) for at in range(12)])[::-1])
    assert [row.custom_id for row in found.rows] == [f"row-{at}" for at in range(1, 13)]
    assert {name: len(found.selected({"verdict": name})) for name in ("right", "wrong")} == {"right": 4, "wrong": 4}
    marks = findings_of(rows_of(*[("1", float(mark)) for mark in range(1, 6)]))
    assert {row.facts["verdict"] for row in marks.rows} == {""}, "1 is the lowest mark"
