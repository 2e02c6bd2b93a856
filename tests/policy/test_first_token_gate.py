"""The first-token gate: no event is returned before the first content."""

from __future__ import annotations

import asyncio

import pytest

from gateway.backend.scripted import Script
from gateway.core.errors import UpstreamTimeout
from gateway.policy.deliver.first_token_gate import MAX_HELD, FirstTokenGate
from metatemplate.values.events import Begun, Delta, Event, Finish, Usage, is_content
from tests.policy.responses import cancel_after, exchange, leave_after, read_response
from tests.support.events import each_event
from tests.support.recording_backend import RecordingBackend
from tests.support.virtual_clock import run as run_virtual

CONTENT: dict[str, tuple[Event, bool]] = {  # name: (event, is content)
    "text": (Delta(0, "a"), True),
    "reasoning": (Delta(0, fields={"reasoning_content": "hm"}), True),
    "a tool call": (Delta(0, fields={"tool_calls": [{"index": 0}]}), True),
    "extras": (Delta(0, extras={"token_ids": [1]}), True),
    "the end": (Finish(0, "stop"), True),
    "empty text": (Delta(0, ""), False),
    "empty fields": (Delta(0, fields={"refusal": None, "tool_calls": []}), False),
    "a role alone": (Begun("m/0"), False),
    "a count": (Usage(1, 2), False),
}


@pytest.mark.parametrize("name", CONTENT)
def test_content_is_an_event_that_opens_the_gate(name: str) -> None:
    event, content = CONTENT[name]
    assert is_content(event) is content


def test_the_gate_opens_at_the_first_content_and_loses_no_event() -> None:
    inner = RecordingBackend(["", "", {"pause": 0.05}, "Hello", " world", {"finish": "stop"}])

    async def run() -> tuple[float, list[object]]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with FirstTokenGate(inner, 1.0).open(exchange()) as events:
            opened = loop.time() - start
            return opened, [event async for event in each_event(events)]

    opened, events = run_virtual(run())
    assert opened >= 0.045
    assert events == [
        Begun("scripted/0"),
        Delta(0, ""),
        Delta(0, ""),
        Delta(0, "Hello"),
        Delta(0, " world"),
        Finish(0, "stop"),
    ]


def test_the_gate_holds_a_limited_number_of_empty_events() -> None:
    response = read_response(FirstTokenGate(RecordingBackend([""] * (MAX_HELD + 5) + ["x", {"finish": "stop"}]), 1.0))
    assert response.texts == {0: "x"}
    assert len(response.events) == 1 + MAX_HELD + 5 + 2


EARLY: dict[str, tuple[Script, str]] = {  # name: (script, error before the first content)
    "an empty stream": ([], "upstream_invalid_response"),
    "nothing but a count": ([{"usage": [7, 0]}], "upstream_invalid_response"),
    "nothing but empty deltas": (["", ""], "upstream_invalid_response"),
    "an error at once": ([{"error": "upstream_overloaded"}], "upstream_overloaded"),
    "an error after a role": (["", {"error": "upstream_disconnected"}], "upstream_disconnected"),
    "no content in time": (["", {"pause": 5}, "late"], "upstream_timeout"),
    "silence": ([{"pause": 5}, "late"], "upstream_timeout"),
}


@pytest.mark.parametrize("name", EARLY)
def test_a_failure_before_the_first_content_is_raised_on_open(name: str) -> None:
    script, code = EARLY[name]
    inner = RecordingBackend(script)

    async def run() -> None:
        async with FirstTokenGate(inner, 0.05).open(exchange()):
            pytest.fail("the gate opened")

    with pytest.raises(Exception, match=r"\w") as caught:
        run_virtual(run())
    assert caught.value.code == code  # type: ignore[attr-defined]
    assert inner.active == 0


def test_the_first_token_timeout_ends_with_the_first_content() -> None:
    response = read_response(FirstTokenGate(RecordingBackend(["a", {"pause": 0.1}, "b", {"finish": "stop"}]), 0.05))
    assert (response.texts, response.code) == ({0: "ab"}, None)


def test_the_timeout_message_gives_the_seconds() -> None:
    response = read_response(FirstTokenGate(RecordingBackend([{"pause": 5}]), 0.02))
    assert isinstance(response.error, UpstreamTimeout)
    assert "0.02 s" in response.error.message


@pytest.mark.parametrize("count", [0, 1, 2], ids=["before", "during", "after the first event"])
def test_leaving_early_releases_the_backend(count: int) -> None:
    inner = RecordingBackend(["a", "b", "c", {"finish": "stop"}])
    leave_after(FirstTokenGate(inner, 1.0), count)
    assert (inner.active, inner.left_early) == (0, 1)


@pytest.mark.parametrize("script", [[{"pause": 5}, "a"], ["a", {"pause": 5}, "b"]], ids=["at the gate", "behind it"])
def test_a_cancelled_wait_releases_the_backend(script: Script) -> None:
    inner = RecordingBackend(script)
    cancel_after(FirstTokenGate(inner, 9.0), 0.03)
    assert (inner.active, inner.left_early) == (0, 1)
