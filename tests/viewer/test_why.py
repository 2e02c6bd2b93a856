"""The page Why has everything that ``gateway why`` prints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.score_options import ScoreOptions
from gateway.core.caller import Caller
from gateway.evaluate.analysis.rows import OpenRuns, RowFacts, RunAnswer, RunRow, RunToolCall
from gateway.evaluate.analysis.why import explain
from gateway.evaluate.reporting.lines import headline
from gateway.viewer.page import PageRequest, Visitor
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.runs.files import RunFiles
from gateway.viewer.runs.pages import RunPages
from gateway.viewer.runs.row import marked
from gateway.viewer.templating import render
from gateway.wire.json import dump_json
from tests.cli import test_scores
from tests.cli.command import command
from tests.evaluate.analysis.seeded_causes import CAUSES, Seeds, seeds_on_engine
from tests.evaluate.analysis.test_why import FACTS, OTHER, ROW, changed
from tests.viewer.hostile_texts import HOSTILE, PLAIN
from tests.viewer.test_hostile_texts import Structure
from tests.viewer.test_view import client, viewing

score_folder = test_scores.folder


class Words(HTMLParser):
    """The text of a page as words, each with one space around it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self._parts: list[str] = []
        self.feed(page)
        self.close()
        self.text = f" {' '.join(' '.join(self._parts).split())} "

    def handle_data(self, data: str) -> None:
        self._parts.append(data)


def page_of(runs: Sequence[str], scores: Sequence[Path | None], score: str | None, **query: str) -> dict[str, Any]:
    """The values of the page Why of two runs, and its text."""
    source = RunFiles(runs, scores, Path("gateway.yaml"), ScoreOptions(score=score))
    a, b = source.names
    asked = PageRequest("/runs/why", {"a": a, "b": b, **query}, None, "/viewer", Visitor())
    page = asyncio.run(RunPages(source, PageThreads()).page(asked))
    assert page.template == "runs/why.html", page.values
    values = {**page.values, "root": asked.root, "asked": asked, "visitor": asked.visitor}
    return {**page.values, "words": Words(render(page.template, values).decode("utf-8")).text}


def missing(printed: str, words: str) -> list[str]:
    """The lines of the terminal whose words do not stand on the page, in their order and without others between."""
    lines = [" ".join(line.strip().removeprefix("note: ").split()) for line in printed.splitlines()]
    return [line for line in lines if line and f" {line} " not in words]


# ---------------------------------------------------------------- what the terminal prints


@pytest.fixture(scope="module")
def seeds() -> Iterator[Seeds]:
    with seeds_on_engine(24) as made:
        yield made


@pytest.mark.parametrize("cause", CAUSES)
def test_the_page_has_every_line_of_the_terminal(seeds: Seeds, cause: str) -> None:
    other = seeds.run(frozenset({cause}))
    for score in ("exact", None):
        options = ("--score", score) if score else ()
        printed = command(seeds.folder, "why", seeds.baseline, other, *options).stdout.decode()
        assert " with another answer or score\n" in printed
        page = page_of([seeds.baseline, other], [None, None], score)
        assert missing(printed, page["words"]) == []
    assert page["causes"] or cause == "noise"


def test_a_line_that_the_page_lacks_is_noticed() -> None:
    assert missing("a b\n\nc:\n  also differs: d\n", " a b c: also differs: ") == ["also differs: d"]


def test_the_page_has_the_notes_about_the_scores_of_a_harness(score_folder: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(score_folder)
    runs, scores = (test_scores.A, test_scores.B), (Path("out-a"), Path("out-b"))
    ended = command(score_folder, "why", *runs, "--scores", "out-a", "--scores", "out-b")
    assert "calls that belong to no row: 1 of judge" in ended.stderr.decode()
    page = page_of(runs, scores, None)
    assert missing((ended.stdout + ended.stderr).decode(), page["words"]) == []
    assert page["headline"].startswith("0.833 → 0.000 (-0.833): 6 of 6 rows differ, one cause: parameters")
    own = page_of(("a.jsonl", "b.jsonl"), [Path("own.jsonl")] * 2, None)
    assert "own.jsonl: calls without a line: 1 of judge" in own["words"]


def test_view_compares_two_harnesses_by_their_questions(score_folder: Path) -> None:
    asked = [json.loads(line) for line in (score_folder / "a.data.jsonl").read_text().splitlines()]
    rows = [{**row, "custom_id": f"other-{number}", "max_tokens": 1} for number, row in enumerate(asked)]
    (score_folder / "other.data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert command(score_folder, "run", "other.data.jsonl", "--keep", "answer", "--out", "other.jsonl").returncode == 0
    given = (test_scores.A, "other.jsonl", "--match", "question")
    printed = command(score_folder, "why", *given).stdout.decode()
    assert printed.startswith("6 rows in both runs, 6 with another answer or score\n")
    with viewing(score_folder, *given) as (_, url), client(url) as browser:
        page = browser.get(browser.get(url).headers["location"])
        assert missing(printed, Words(page.text).text) == []
        why = browser.get(str(page.url).replace("?", ".json?", 1)).json()
        pairs = browser.get(why["rows"].replace("?", ".json?", 1)).json()["rows"]
        assert [one["other_id"] for one in pairs] == [f"other-{number}" for number in range(6)]
        row = browser.get(pairs[1]["link"].replace("?", ".json?", 1)).json()
        assert [column["row"] for column in row["columns"]] == [pairs[1]["custom_id"], "other-1"]
        assert (row["in_list"]["number"], row["different"]) == (2, ["max_tokens"])
        assert row["question"] == asked[1]["messages"][0]["content"]


# ---------------------------------------------------------------- the first sentence


def rows_of(*rows: RunRow, points: float | None = None) -> list[RunRow]:
    return [replace(row, custom_id=str(number), points=points) for number, row in enumerate(rows)]


PLACES = [
    replace(changed("prompt"), facts=replace(FACTS, prompt=f"{'<u>hi</u>'[:at]}!", template="t@sha256:2", raw="43</u>"))
    for at in (9, 2, 0)
]
HEADLINES: dict[str, tuple[list[RunRow], list[RunRow], str]] = {
    "nothing in common": (
        [ROW],
        [replace(ROW, custom_id="b", facts=replace(FACTS, request="x"))],
        "no row was compared",
    ),
    "no difference": (
        rows_of(ROW, points=1),
        rows_of(ROW, points=1),
        "1.000 → 1.000 (+0.000): no answer or score differs",
    ),
    "no score": (
        rows_of(ROW, ROW),
        rows_of(ROW, changed("parameters")),
        "1 of 2 rows differ, one cause: parameters: temperature 0 → 1, stop ['</u>'] → []",
    ),
    "several causes": (
        rows_of(ROW, ROW, points=1),
        rows_of(changed("prompt"), ROW, points=0.5),
        "1.000 → 0.500 (-0.500): 2 of 2 rows differ, 2 causes: prompt (1 row, -0.250), scoring (1 row, -0.250)",
    ),
    "another text of a template": (
        rows_of(ROW),
        rows_of(changed("prompt")),
        "1 of 1 rows differ, one cause: template t with another text, first difference at byte 5",
    ),
    "many places": (
        rows_of(*[ROW] * 4),
        rows_of(changed("prompt"), *PLACES),
        "4 of 4 rows differ, one cause: template t with another text, first difference at 4 places",
    ),
    "two places": (
        rows_of(ROW, ROW),
        rows_of(changed("prompt"), PLACES[0]),
        "2 of 2 rows differ, one cause: template t with another text, first difference at byte 5 and byte 9",
    ),
    "another template": (
        rows_of(ROW),
        rows_of(replace(changed("prompt"), facts=replace(FACTS, prompt="<u>ho", template="u@sha256:1", raw=""))),
        "1 of 1 rows differ, one cause: template t → u, first difference at byte 4",
    ),
    "only a hash": (
        rows_of(replace(ROW, facts=replace(FACTS, prompt=None))),
        rows_of(replace(ROW, answers=OTHER, facts=replace(FACTS, prompt=None, prompt_sha256="i"))),
        "1 of 1 rows differ, one cause: prompt",
    ),
    "nothing recorded": (
        rows_of(ROW),
        rows_of(replace(ROW, answers=(RunAnswer("43", "other"),))),
        "1 of 1 rows differ, one cause: not recorded",
    ),
}


@pytest.mark.parametrize(("a", "b", "sentence"), HEADLINES.values(), ids=HEADLINES)
def test_the_first_sentence_has_the_scores_the_rows_and_the_cause(
    a: list[RunRow], b: list[RunRow], sentence: str
) -> None:
    assert headline(explain(a, b)) == sentence


# ---------------------------------------------------------------- texts of rows


def row_with(text: str, letter: str, target: str, points: float) -> RunRow:
    """A row which has a text wherever a row may have one."""
    asked = {"messages": [{"role": "user", "content": f"{letter}{text}"}]}
    call = RunToolCall(text, text)
    facts = RowFacts(
        asked=asked,
        request=letter,
        template=f"{letter}{text}",
        prompt=f"{letter}{text}",
        params={f"p{text}": [letter, text], "equal": text},
        target=target,
        raw=f"{letter}{text}",
    )
    answer = RunAnswer(f"{letter}{text}", text, text, (call,), text, text)
    row = RunRow(f"row{text}", text, text, text, (answer,), text, 1.0, {"answer": text or "none"}, facts=facts)
    return replace(row, points=points, read_asked=lambda **_: asked, read_calls=lambda: [{"error": text, "params": {}}])


class TwoRuns:
    """Two runs of one row."""

    def __init__(self, a: RunRow, b: RunRow) -> None:
        self._rows = {"a": a, "b": b}

    def runs(self, caller: Caller, start: int, count: int) -> list[dict[str, Any]]:
        return [{"run": name} for name in self._rows]

    def state(self, run: str, caller: Caller) -> Hashable:
        return run

    def rows(self, files: OpenRuns, run: str, caller: Caller) -> Iterator[RunRow]:
        yield self._rows[run]

    def score_name(self, run: str) -> str:
        return ""


def row_page(a: RunRow, b: RunRow) -> dict[str, Any]:
    """The values of the page of the row in two runs, and its text."""
    asked = PageRequest("/runs/row", {"a": "a", "b": "b", "row": a.custom_id}, None, "/viewer", Visitor())
    page = asyncio.run(RunPages(TwoRuns(a, b), PageThreads()).page(asked))
    values = {**page.values, "root": asked.root, "asked": asked, "visitor": asked.visitor}
    return {**page.values, "words": Words(render(page.template, values).decode("utf-8")).text}


def test_a_limit_that_the_gateway_has_set_differs_and_does_not_count() -> None:
    a, b = [replace(row, facts=replace(row.facts, default_limit=True)) for row in (ROW, changed("prompt"))]
    b = replace(b, facts=replace(b.facts, params={**(a.facts.params or {}), "max_tokens": 498}))
    found = row_page(a, b)
    assert (found["different"], found["not_counted"]) == (["max_tokens"], ["max_tokens"])
    assert " max_tokens counts as no difference: the gateway has set it" in found["words"]
    counted = row_page(a, replace(b, facts=replace(b.facts, default_limit=False)))
    assert (counted["different"], counted["not_counted"]) == (["max_tokens"], [])


@pytest.mark.parametrize(
    ("answer", "expected"), [(None, ""), (["4", "four"], '["4","four"]'), ("None", "None"), (0, "0")]
)
def test_an_expected_answer_is_a_text_or_json(answer: Any, expected: str) -> None:
    assert row_page(replace(ROW, columns={"answer": answer}), changed("prompt"))["expected"] == expected


@pytest.mark.parametrize(
    ("texts", "different"),
    [
        (("a: 28", "a:28"), (" ", "")),
        (("82+29=?", "82+129=?"), ("", "1")),
        (("51", "31"), ("5", "3")),
        (("101", "10"), ("1", "")),
        (("aaa", "aa"), ("a", "")),
        (("one two", "one 234567890 two"), ("t", "2")),
        (("x123456789y", "xabcdefghiz"), ("1", "a")),
    ],
)
def test_what_only_one_text_has_is_marked_else_one_character(
    texts: tuple[str, str], different: tuple[str, str]
) -> None:
    found = [marked(*texts), marked(*texts[::-1])]
    assert tuple(one["different"] for one in found) == different
    assert tuple(one["same"] + one["different"] + one["rest"] for one in found) == texts


def test_the_default_limit_of_the_gateway_is_one_place() -> None:
    def limited(number: int, name: str, answer: str, *, is_default: bool) -> RunRow:
        facts = replace(FACTS, params={"max_tokens": number}, default_limit=is_default)
        return replace(ROW, custom_id=name, answers=(RunAnswer(answer, "stop"),), facts=facts)

    a = [limited(400 + at, str(at), "42", is_default=True) for at in range(3)]
    b = [limited(2, str(at), "43", is_default=False) for at in range(3)]
    assert [one.where for one in explain(a, b).found] == ["max_tokens default → 2"] * 3
    assert [one.where for one in explain(b, a).found] == ["max_tokens 2 → default"] * 3
    assert explain(a, b).found[1].differences["parameters"] == "max_tokens 401 → 2"


def test_two_questions_that_differ_are_both_shown() -> None:
    a, b = [replace(row_with("", letter, "t", 1.0), custom_id="1") for letter in "ab"]
    found = row_page(a, b)
    assert (found["question"], [one["different"] for one in found["questions"]]) == ("", ["a", "b"])
    assert found["words"].count(" Question A: a a B: b b ") == 1
    same = row_page(a, replace(b, read_asked=a.read_asked))
    assert (same["question"], same["questions"]) == ("a", [])


def elements_of(text: str) -> dict[str, set[str]]:
    """The elements of each page about two runs, with the names and values of their attributes."""
    runs = TwoRuns(row_with(text, "a", text, 0.5), row_with(text, "b", f"x{text}", 0.0))
    pages, found = RunPages(runs, PageThreads()), dict[str, set[str]]()
    for path, query in (("why", {}), ("rows", {"where": text}), ("rows", {}), ("row", {"row": f"row{text}"})):
        asked = PageRequest(f"/runs/{path}", {"a": "a", "b": "b", **query}, None, "/viewer", Visitor())
        page = asyncio.run(pages.page(asked))
        assert (page.status, page.values["problem"]) == (200, "")
        dump_json(page.values).encode("ascii")
        values = {**page.values, "root": asked.root, "asked": asked, "visitor": asked.visitor}
        found[f"{path}{len(query)}"] = set(map(str, Structure(render(page.template, values).decode("utf-8")).found))
    return found


def test_no_text_of_a_row_becomes_markup_and_none_breaks_a_page() -> None:
    # a long text ends with "…", and one without a character that is shown is no question
    known = elements_of(PLAIN), elements_of("x" * 1000), elements_of("")
    for text in HOSTILE:
        for path, elements in elements_of(text).items():
            assert elements <= set.union(*[one[path] for one in known]), (path, text)
