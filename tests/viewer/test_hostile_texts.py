"""Stored texts never become markup: a page has the same elements and attributes with any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import pytest

from gateway.config.snapshot import RecordingsSpec
from gateway.core.call import Call
from gateway.core.exchange import Exchange, RecordedExchange
from gateway.storage.recorder import CallFacts, Recorder
from gateway.telemetry.record import Record
from gateway.viewer.page import Page, PageRequest
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.recordings.pages import RecordingPages
from gateway.viewer.templating import render
from gateway.wire.json import dump_json
from metatemplate.values.dialogue import Dialogue, Message
from metatemplate.values.events import Delta, Event, Finish, Usage
from tests.support.serving import gateway
from tests.viewer.hostile_texts import HOSTILE, PLAIN

CONFIG = (
    "recordings: {path: calls.sqlite}\nmodels: {m: {template: chatml, targets: [{speaks: scripted, script: s.yaml}]}}"
)
ADDRESSES = ("href", "src", "action", "value", "aria-label")
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
        self.found.append((tag, [(name, "" if name in ADDRESSES else value) for name, value in attrs]))
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in ("href", "src", "action") or (value or "").startswith(("/viewer", "#main", "#prompt-"))

    def handle_endtag(self, tag: str) -> None:
        if tag != "i":
            self.found.append(f"/{tag}")

    def handle_comment(self, data: str) -> None:
        self.found.append("comment")

    def unknown_decl(self, data: str) -> None:
        self.found.append("declaration")

    def handle_pi(self, data: str) -> None:
        self.found.append("processing instruction")


def record(recorder: Recorder, text: str, number: int) -> None:
    """Record a call that has a text wherever a recording may have one."""
    name = text.encode("utf-8", "replace").decode()  # SQLite stores no lone surrogates outside JSON
    call = Call("chat", name, f"req_{number}", dialogue=Dialogue((Message("user", text),)))
    recording = recorder.begin("full", CallFacts(name, name, name, name, name, call), RecordingsSpec())
    params = {"temperature": 0, text: text}
    events: list[Event] = [
        Delta(0, text),
        Delta(0, "", fields={"reasoning_content": text}),
        Finish(0, "stop"),
        Usage(1, 1),
    ]
    for sent in (
        Exchange("completions", call.request_id, (text,), params=params, stops=(text,)),
        Exchange("chat", call.request_id, messages=({"role": text, "content": text},), params=params),
    ):
        moments = [(0.01 * at, event) for at, event in enumerate(events)]
        recording.exchanges.append(RecordedExchange(sent, 1e9, moments, list(events)))
    recording.notices, recording.dataset_prompt = [text], name
    recording.end(
        Record(
            call.request_id,
            name,
            name,
            name,
            200,
            False,
            1.0,
            template=name,
            target=name,
            key=name,
            failed_attempts=(text,),
            answers_cut=(text,),
            stop_cuts=("engine",),
            usage_source=name,
            cache=name,
        )
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordingPages]:
    """The pages of a file with one call for each text, and before them a call with a harmless text."""
    folder = tmp_path_factory.mktemp("hostile")
    recorder = Recorder(folder / "calls.sqlite", pytest.fail, lambda: 2e9)
    for number, text in enumerate([PLAIN, *HOSTILE]):
        record(recorder, text, number)
    recorder.close()
    files = {"s.yaml": "[Hello, {finish: stop}]"}
    with closing(PageThreads()) as threads, gateway(folder, CONFIG, files=files) as served:
        yield RecordingPages(served.runtime.state, threads)


def shown(pages: RecordingPages, path: str, query: dict[str, str]) -> list[Any]:
    """The structure of a page, whose values are also written as JSON."""
    asked = PageRequest(path, query, None, "/viewer", navigation={"/recordings": "Recordings"})
    page: Page = asyncio.run(pages.page(asked))
    dump_json(page.values).encode("ascii")
    values = {**page.values, "root": asked.root, "asked": asked, "visitor": asked.visitor}
    return Structure(render(page.template, values).decode("utf-8")).found


def test_there_are_two_hundred_texts() -> None:
    assert len(HOSTILE) == len(set(HOSTILE)) == 200


def test_no_text_of_a_call_becomes_markup(pages: RecordingPages) -> None:
    expected = shown(pages, "/recordings/req_0", {})
    different = [HOSTILE[n - 1] for n in range(1, 201) if shown(pages, f"/recordings/req_{n}", {}) != expected]
    assert different == []


def test_no_text_becomes_markup_in_the_list_and_in_its_filters(pages: RecordingPages) -> None:
    names = ("model", "key", "outcome", "run")

    def listed(text: str) -> list[Any]:
        name = text.encode("utf-8", "replace").decode()
        return shown(pages, "/recordings", dict.fromkeys(names, name))

    expected = listed(PLAIN)
    assert any(tag == "td" for tag, *_ in expected)
    assert [text for text in HOSTILE if listed(text) != expected] == []


def test_an_unknown_id_is_shown_as_text(pages: RecordingPages) -> None:
    paths = [f"/recordings/x{quote(text.encode('utf-8', 'replace'), safe='')}" for text in (PLAIN, *HOSTILE)]
    assert len({str(shown(pages, path, {})) for path in paths}) == 1
