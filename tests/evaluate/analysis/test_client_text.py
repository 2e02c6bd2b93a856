"""The texts of a recorded request."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.core.call import Call
from gateway.core.exchange import RecordedExchange
from gateway.evaluate.analysis.client_text import beginning, client_text, expected_of, question_of
from gateway.evaluate.analysis.recordings import read_recording
from gateway.evaluate.analysis.rows import RunRow
from gateway.storage.recorder import CallFacts, Recorder
from gateway.storage.recordings import open_recording
from gateway.wire.redaction import Redactor
from metatemplate.values.dialogue import Dialogue, Message
from metatemplate.values.events import Delta, Finish
from tests.policy.responses import exchange
from tests.policy.test_recorder import RECORD, SPEC

REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "messages": (
        {"messages": [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1=?"}]},
        "Add.\n1+1=?",
    ),
    "parts": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is it?"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    ],
                }
            ]
        },
        "What is it?",
    ),
    "prompts": ({"prompts": ["1+1=", [1, 2]]}, "1+1="),
    "a dataset prompt": (
        {"dataset_prompt": {"id": "sums", "version": "", "variables": {"question": "1+1=?"}, "examples": None}},
        "1+1=?",
    ),
    "tools": ({"messages": [{"role": "user", "content": "hi"}], "tools": [{"function": {"name": "f"}}]}, "hi"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_texts_stand_in_their_order_without_roles(name: str) -> None:
    asked, text = REQUESTS[name]
    assert client_text(asked) == text


@pytest.mark.parametrize("redact", [False, True])
def test_a_recorded_row_has_what_its_client_asked_unless_it_is_redacted(redact: bool, tmp_path: Path) -> None:
    path, message = tmp_path / "calls.sqlite", {"role": "user", "content": "1+1=?"}
    recorder = Recorder(path, lambda reason: None)
    call = Call(endpoint="chat", model="m", request_id="r", dialogue=Dialogue((Message("user", "1+1=?", raw=message),)))
    recording = recorder.begin("full", CallFacts("policy", call=call), SPEC, Redactor(["email"] if redact else []))
    recording.exchanges.append(RecordedExchange(exchange(), 1.0, [], [Delta(0, "2"), Finish(0, "stop")]))
    recording.end(RECORD)
    recorder.close()
    with closing(open_recording(path)) as file:
        (row,) = read_recording(file)
        assert row.read_asked() == row.with_facts().facts.asked == (None if redact else {"messages": [message]})
        assert row.read_asked(redacted=True) == {"messages": [message]}
        assert question_of(row) == "1+1=?"


def test_a_list_shows_the_question_without_examples_and_system_messages() -> None:
    roles = [("system", "Add."), ("user", "1+1=?"), ("assistant", "2"), ("user", " 3 + 4\n= ? ")]
    asked = {"messages": [{"role": role, "content": text} for role, text in roles]}
    shown = question_of(RunRow("a", "m", read_asked=lambda **_: asked))
    assert (
        shown
        == question_of(RunRow("a", "m", read_asked=lambda **_: {"messages": asked["messages"][::3]}))
        == "3 + 4 = ?"
    )
    assert question_of(RunRow("a", "m", read_asked=lambda **_: {"messages": asked["messages"][:1]})) == "Add."
    assert question_of(RunRow("a", "m")) == ""


def test_a_list_shows_the_expected_answer_of_a_kept_column() -> None:
    shown: dict[str, dict[str, Any]] = {
        "": {},
        "7": {"answer": 7},
        r"x\u202ey": {"answer": "x\u202ey"},
        "None": {"answer": "None"},
    }
    assert [expected_of(RunRow("a", "m", columns=one)) for one in shown.values()] == list(shown)
    assert expected_of(RunRow("a", "m", columns={"answer": None})) == ""


def test_the_beginning_of_a_text_has_at_most_sixty_characters_on_one_line() -> None:
    assert beginning("a" * 60) == "a" * 60
    for text in ("a" * 61, "a" * 10**6, "a " * 100):
        assert (len(beginning(text)), beginning(text)[-1]) == (60, "…")
    assert beginning("\ud800") == r"\ud800"
    assert beginning(" " * 10**6 + "a").endswith("…")
