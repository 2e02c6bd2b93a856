"""The line of a failed attempt: its fields, what it never contains, and how many lines are written."""

from __future__ import annotations

import logging

import pytest

from gateway.backend.openai.error_mapping import error_for_status
from gateway.core.errors import ForbiddenParameter, GatewayError, UpstreamDisconnected
from gateway.core.exchange import Exchange
from gateway.telemetry.attempts import MAX_LINES, WINDOW, AttemptObserver
from gateway.telemetry.metrics import Metrics

URLS = {"m/0": "http://engine:8000/v1/completions"}
KEY = "my engine key"
PROMPT = "the prompt that nobody may read in a log"


def exchange(**fields: object) -> Exchange:
    made = Exchange(endpoint="completions", request_id="req_1", prompts=(PROMPT,), **fields)  # type: ignore[arg-type]
    made.attempts.begin("m/0")
    return made


@pytest.fixture
def observer(caplog: pytest.LogCaptureFixture) -> AttemptObserver:
    caplog.set_level(logging.INFO)
    return AttemptObserver("m", URLS, Metrics(), now=lambda: 0.0)


BODIES = {  # status and body of the target's response: status and reason in the line
    "a message": (500, '{"error": {"message": "CUDA out of memory"}}', '500 attempt=1 reason="CUDA out of memory"'),
    "the first line": (503, "busy\nmore", "503 attempt=1 reason=busy"),
    "a traceback": (
        500,
        "Traceback (most recent call last):\n  File x\nRuntimeError: no memory\n",
        '500 attempt=1 reason="RuntimeError: no memory"',
    ),
    "a code without a message": (500, '{"error": {"code": "oom"}}', "500 attempt=1 reason=oom"),
    "HTML": (
        502,
        "<html>bad gateway</html>",
        '502 attempt=1 reason="the server sent no reason (an HTML page of 24 bytes: bad gateway)"',
    ),
    "nothing": (502, "", '502 attempt=1 reason="the server sent no reason (an empty body)"'),
    "the key": (401, f"{KEY.upper()} is wrong", '401 attempt=1 reason="… is wrong"'),
    "another key": (401, "sk-abcdef123456 is wrong", '401 attempt=1 reason="… is wrong"'),
    "an address": (500, "no route to 10.1.2.3:80", '500 attempt=1 reason="no route to …"'),
    "the prompt": (400, f"cannot tokenize {PROMPT} at 7", '400 attempt=1 reason="cannot tokenize … at 7"'),
    "control characters": (500, "a\x1b[31m\u202ered", "500 attempt=1 reason=a[31mred"),
    "quotes": (500, 'no "x" here', r'500 attempt=1 reason="no \"x\" here"'),
    "a long message": (500, "no memory " * 40, '500 attempt=1 reason="' + ("no memory " * 40)[:199] + '…"'),
}


@pytest.mark.parametrize("case", BODIES)
def test_a_failed_attempt_is_one_line_with_status_and_reason(
    observer: AttemptObserver, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    status, body, end = BODIES[case]
    error = error_for_status(status, body.encode(), private=(KEY,))
    observer.failed(exchange(), "m/0", error)
    start = "req_1 attempt_failed model=m target=m/0 url=http://engine:8000/v1/completions"
    assert caplog.messages == [f"{start} error={error.code} status={end}"]
    assert caplog.records[0].levelname == "WARNING"
    assert len(caplog.messages[0].encode()) < 2048


def test_messages_are_not_repeated_either(observer: AttemptObserver, caplog: pytest.LogCaptureFixture) -> None:
    messages = ({"role": "user", "content": [{"type": "text", "text": PROMPT}]},)
    observer.failed(exchange(messages=messages), "m/0", error_for_status(400, f"bad: {PROMPT[4:]}!".encode()))
    assert caplog.messages[0].endswith("reason=bad:…!")


def test_a_failure_without_a_response_has_the_gateways_own_reason(
    observer: AttemptObserver, caplog: pytest.LogCaptureFixture
) -> None:
    observer.broke_off(exchange(), "m/0", UpstreamDisconnected("the model's server closed the connection"))
    assert "req_1 answer_broke_off model=m target=m/0" in caplog.messages[0]
    assert caplog.messages[0].endswith(
        'error=upstream_disconnected status=- attempt=1 reason="the model\'s server closed the connection"'
    )


def test_a_request_that_was_never_sent_is_no_line(observer: AttemptObserver, caplog: pytest.LogCaptureFixture) -> None:
    observer.failed(exchange(), "m/0", ForbiddenParameter("no"))
    assert not caplog.messages


def test_many_failures_of_one_kind_share_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = [0.0]
    observer = AttemptObserver("m", URLS, Metrics(), now=lambda: now[0])
    error: GatewayError = UpstreamDisconnected("closed")
    for _ in range(MAX_LINES + 7):
        observer.failed(exchange(), "m/0", error)
    observer.failed(exchange(), "m/1", error)  # another target has lines of its own
    assert len(caplog.messages) == MAX_LINES + 1
    now[0] = WINDOW
    for _ in range(2):
        observer.failed(exchange(), "m/0", error)
    assert [line.partition("similar_lines_left_out=")[2] for line in caplog.messages[-2:]] == ["7", ""]
