"""Stored texts never become markup: a page has the same elements and attributes with any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest

from gateway.config.snapshot import RecordingsSpec
from gateway.core.call import Call
from gateway.core.exchange import Exchange, RecordedExchange
from gateway.storage.recorder import CallFacts, Recorder
from gateway.telemetry.record import Record
from gateway.viewer.page import Page, PageRequest
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.recordings.pages import RecordingPages
from gateway.viewer.runs.pages import RecordedRunPages
from gateway.viewer.templating import render
from gateway.wire.json import dump_json
from metatemplate.values.dialogue import Dialogue, Message
from metatemplate.values.events import Delta, Event, Finish, Usage
from tests.support.serving import gateway
from tests.viewer.hostile_texts import HOSTILE, PLAIN

CONFIG = (
    "recordings: {path: calls.sqlite}\nmodels: {m: {template: chatml, targets: [{speaks: scripted, script: s.yaml}]}}"
)
Pages = Mapping[str, RecordingPages | RecordedRunPages]
"""The first part of a path → the pages."""
ADDRESSES = ("href", "src", "action", "value", "title", "aria-label")
"""The attributes whose values contain recorded or given texts. Their values differ; their names must not."""


class Structure(HTMLParser):
    """The elements of a page with their attributes, without texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[Any] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "i":
            assert [name for name, _ in attrs] == ["data-mark"]  # the mark of an invisible character
            return
        if tag == "option":  # which choices a filter has depends on the recorded calls
            assert {name for name, _ in attrs} <= {"value", "selected"}
            return
        self.found.append((tag, [(name, "" if name in ADDRESSES else value) for name, value in attrs]))
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in ("href", "src", "action") or (value or "").startswith(("/viewer", "#"))

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("i", "option"):
            self.found.append(f"/{tag}")

    def handle_comment(self, data: str) -> None:
        self.found.append("comment")

    def unknown_decl(self, data: str) -> None:
        self.found.append("declaration")

    def handle_pi(self, data: str) -> None:
        self.found.append("processing instruction")


def record(recorder: Recorder, text: str, number: int, run: str = "", more: str = "") -> None:
    """Record a call that has a text wherever a recording may have one. ``more`` is added to its prompt and answer."""
    name = text.encode("utf-8", "replace").decode()  # SQLite stores no lone surrogates outside JSON
    call = Call("chat", name, f"req_{run or number}", dialogue=Dialogue((Message("user", text),)))
    recording = recorder.begin("full", CallFacts(name, name, name, run or name, name, call), RecordingsSpec())
    params = {"temperature": 0, text: text}
    events: list[Event] = [
        Delta(0, text + more),
        Delta(0, "", fields={"reasoning_content": text}),
        Finish(0, "stop"),
        Usage(1, 1),
    ]
    for sent in (
        Exchange("completions", call.request_id, (text + more,), params=params, stops=(text,)),
        Exchange("chat", call.request_id, messages=({"role": text, "content": text},), params=params),
    ):
        moments = [(0.01 * at, event) for at, event in enumerate(events)]
        recording.exchanges.append(RecordedExchange(sent, 1e9, moments, list(events)))
    recording.notices, recording.dataset_prompt = [text], name
    recording.end(
        Record(
            call.request_id,
            "chat" if run else name,
            name,
            "ok" if run[:1] in ("a", "b") else name,
            200,
            False,
            1.0,
            template=name,
            target=name,
            key="" if run else name,
            failed_attempts=(text,),
            error=text,
            answers_cut=(text,),
            stop_cuts=("engine",),
            usage_source=name,
            cache=name,
        )
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """The pages of a file with one call for each text, and before them a call with a harmless text.

    Each of them has a newer and an older call.
    """
    folder = tmp_path_factory.mktemp("hostile")
    recorder = Recorder(folder / "calls.sqlite", pytest.fail, lambda: 2e9)
    record(recorder, "first", -1)
    for number, text in enumerate([PLAIN, *HOSTILE]):
        record(recorder, text, number)
        for run in "abc":  # runs of one row: two with other prompts and answers, and one that failed
            record(recorder, text, number, f"{run}{number}", f" {run}")
    record(recorder, "last", -2)
    recorder.close()
    files = {"s.yaml": "[Hello, {finish: stop}]"}
    with closing(PageThreads()) as threads, gateway(folder, CONFIG, files=files) as served:
        state = served.runtime.state
        yield {"recordings": RecordingPages(state, threads), "runs": RecordedRunPages(state, threads)}


def shown(pages: Pages, path: str, query: dict[str, str]) -> list[Any]:
    """The structure of a page, whose values are also written as JSON."""
    asked = PageRequest(path, query, None, "/viewer", navigation={"/recordings": "Recordings"})
    page: Page = asyncio.run(pages[path.split("/")[1]].page(asked))
    assert page.status in (200, 404)
    dump_json(page.values).encode("ascii")
    values = {**page.values, "root": asked.root, "asked": asked, "visitor": asked.visitor}
    return Structure(render(page.template, values).decode("utf-8")).found


def test_there_are_two_hundred_texts() -> None:
    assert len(HOSTILE) == len(set(HOSTILE)) == 200


def test_no_text_of_a_call_becomes_markup(pages: Pages) -> None:
    expected = shown(pages, "/recordings/req_0", {})
    different = [HOSTILE[n - 1] for n in range(1, 201) if shown(pages, f"/recordings/req_{n}", {}) != expected]
    assert different == []


def test_no_text_becomes_markup_in_the_list_and_in_its_filters(pages: Pages) -> None:
    names = ("model", "key", "outcome", "run")

    def listed(text: str) -> list[Any]:
        name = text.encode("utf-8", "replace").decode()
        return shown(pages, "/recordings", dict.fromkeys(names, name))

    expected = listed(PLAIN)
    assert any(tag == "td" for tag, *_ in expected)
    assert [text for text in HOSTILE if listed(text) != expected] == []


def test_an_unknown_id_is_shown_as_text(pages: Pages) -> None:
    paths = [f"/recordings/x{quote(text.encode('utf-8', 'replace'), safe='')}" for text in (PLAIN, *HOSTILE)]
    assert len({str(shown(pages, path, {})) for path in paths}) == 1


@pytest.mark.parametrize(
    "path",
    [
        "report?run=a{}",
        "rows?run=a{}",
        "row?run=a{}",
        "why?a=a{}&b=b{}",
        "rows?a=a{}&b=b{}",
        "row?a=a{}&b=b{}",
        "row?run=c{}",
        "rows?run=c{}",
        "row?a=a{}&b=c{}",
    ],
)
def test_no_text_of_a_row_becomes_markup(pages: Pages, path: str) -> None:
    page, _, query = path.partition("?")

    def of(number: int, text: str) -> list[Any]:
        """The structure of the page, without the sizes of its pictures and the signs of a text that was cut."""
        asked = dict(parse_qsl(query.replace("{}", str(number))))
        if page == "row":
            shown(pages, "/runs/rows", asked)  # the row before and after come from the list that was read
            asked["row"] = text.encode("utf-8", "replace").decode()
        found = shown(pages, f"/runs/{page}", asked)
        names = [one if isinstance(one, str) else (one[0], [name for name, _ in one[1]]) for one in found]
        return [one for one in names if one not in ("/span", ("span", ["class"]))]

    expected = of(0, PLAIN)
    assert any(tag in ("td", "dd", "pre") for tag, *_ in expected)
    assert [text for number, text in enumerate(HOSTILE, 1) if of(number, text) != expected] == []


def test_no_text_becomes_markup_in_the_list_of_runs(pages: Pages) -> None:
    rows = [row for start in range(0, 806, 50) for row in list_rows(shown(pages, "/runs", {"start": str(start)}))]
    assert len(rows) == 806
    kinds = {str(row) for row in rows if "checked" not in str(row)}
    assert sorted("strong" in one for one in kinds) == [False, True], "a failed run has a marked share"


def list_rows(structure: list[Any]) -> list[list[Any]]:
    """The elements of each row of the body of a table."""
    starts = [at for at, one in enumerate(structure) if one == ("tr", [])][1:]
    return [structure[start : structure.index("/tr", start)] for start in starts]
