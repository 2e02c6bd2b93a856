"""The texts of a recorded request."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.core.call import Call
from gateway.core.exchange import RecordedExchange
from gateway.evaluate.analysis.client_text import client_text
from gateway.evaluate.analysis.recordings import read_recording
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
