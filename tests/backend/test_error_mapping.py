"""The mapping of a server's error, and the part of its message that a client may see."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.backend.openai.error_mapping import (
    UpstreamErrorBody,
    error_in_body,
    one_safe_line,
    parse_retry_after,
    read_error_body,
)

COMPLAINTS = {  # body: what it says
    '{"error": {"message": "m", "code": 400, "type": "T", "param": "p"}}': UpstreamErrorBody("m", "400", "t", "p"),
    '{"error": "m", "error_type": "Validation"}': UpstreamErrorBody("m", type="validation"),
    '{"detail": "m"}': UpstreamErrorBody("m"),
    '{"detail": [{"loc": ["body", "stop", 0], "msg": "bad", "input": "secret"}]}': UpstreamErrorBody("stop.0: bad"),
    '{"object": "error", "message": "m", "code": 40303}': UpstreamErrorBody("m", "40303"),
    '{"message": "m"}': UpstreamErrorBody("m"),
    '{"error": {"code": 400, "details": [{"locale": "en"}, {"reason": "API_KEY_INVALID"}]}}': UpstreamErrorBody(
        code="400", type="api_key_invalid"
    ),
    "[1]": UpstreamErrorBody(),
    "plain": UpstreamErrorBody("plain"),
    "": UpstreamErrorBody(),
}


@pytest.mark.parametrize("body", COMPLAINTS)
def test_every_shape_of_complaint_is_read(body: str) -> None:
    assert read_error_body(body.encode()) == COMPLAINTS[body]


LINES = {  # what the server said: what a client may read
    "max_tokens must be positive": "max_tokens must be positive",
    "\n  first\nsecond": "first",
    "see http://10.0.0.1:8000/x for more": "see … for more",
    "host 10.1.2.3:80 down": "host … down",
    "cannot open /opt/models/secret/config.json": "cannot open …",
    "key sk-abcdef123456 is wrong": "key … is wrong",
    "<html><body>no</body></html>": "",
    "Traceback (most recent call last):\n  File": "",
    "a\x1b[31mred": "a[31mred",
    "1/2 of a/b": "1/2 of a/b",
    "x" * 300: "x" * 199 + "…",
    "too long: " + "x" * 600: "too long: …",
    "x" * 600: "…",
    "s\u200bk-abcdef123456 is wrong": "… is wrong",
    "tool get_weather_in_celsius_for_tomorrow_2 is unknown": "tool get_weather_in_celsius_for_tomorrow_2 is unknown",
    "step 1:20 of max_tokens:4096": "step 1:20 of max_tokens:4096",
}


@pytest.mark.parametrize("said", LINES, ids=lambda said: repr(said[:24]))
def test_only_a_safe_line_is_passed_on(said: str) -> None:
    assert one_safe_line(said) == LINES[said]


def test_a_short_private_text_is_removed_as_a_word_only() -> None:
    assert one_safe_line("a cat at a: A", ("a",)) == "… cat at …: …"


LONG = {  # texts on which the expressions would take minutes, if they saw all of them
    "schemes": "a." * 500_000,
    "words": "a" * 1_000_000,
    "addresses": "1." * 500_000,
    "paths": "/a" * 500_000,
    "hosts": "a-" * 500_000,
    "blanks": " " * 1_000_000,
    "lines": "\n" * 1_000_000,
    "keys": "sk-" * 333_000,
}


@pytest.mark.parametrize("shape", ["message", "code", "type", "param"])
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_megabyte_of_any_words_is_judged_at_once(text: str, shape: str) -> None:
    started = time.process_time()
    error_in_body({"error": {"message": "m", "type": "invalid_request_error", shape: text}})
    one_safe_line(text)
    assert time.process_time() - started < 5


NESTED: list[object] = []
for _ in range(1000):
    NESTED = [NESTED]
ODD: list[object] = [NESTED, {"a": NESTED}, 1.5, True, 10**30, -1, [[]], {}]


@pytest.mark.parametrize("value", ODD, ids=lambda value: str(type(value)))
@pytest.mark.parametrize("key", ["message", "code", "type", "param"])
def test_a_complaint_of_odd_values_is_an_error_and_no_failure_of_ours(key: str, value: object) -> None:
    for body in (
        {"error": {"message": "m", key: value}},
        {"object": "error", key: value},
        {"detail": value},
        {"detail": [{"loc": value, "msg": value}]},
        {"error": "m", "error_type": value},
    ):
        error = error_in_body(body)
        assert error is not None
        assert error.status >= 400


INSIDE = {  # an object that came with status 200: the error in it
    '{"error": {"message": "x", "code": "overloaded"}}': "upstream_overloaded",
    '{"error": {"message": "x", "code": 429}}': "upstream_rate_limited",
    '{"error": {"message": "x", "type": "invalid_request_error"}}': "upstream_rejected_request",
    '{"error": {"message": "x", "type": "insufficient_quota"}}': "upstream_quota_exhausted",
    '{"error": {"message": "maximum context length is 5", "code": 400}}': "context_length_exceeded",
    '{"error": "x"}': "upstream_error",
    '{"detail": "x"}': "upstream_error",
    '{"object": "error", "message": "x", "code": 503}': "upstream_overloaded",
    '{"error": null, "choices": []}': None,
    '{"choices": [], "detail": "x"}': None,
    '{"id": "x"}': None,
}


@pytest.mark.parametrize("body", INSIDE)
def test_an_error_inside_a_200_is_found(body: str) -> None:
    error = error_in_body(json.loads(body))
    assert (error.code if error else None) == INSIDE[body]


def test_retry_after_in_milliseconds_wins_and_dates_count_from_now() -> None:
    assert parse_retry_after("30", "2500") == 2.5
    assert parse_retry_after("Thu, 01 Jan 1970 00:01:40 GMT", None, now=90.0) == 10.0
    assert parse_retry_after(None, None) is None
    assert parse_retry_after("9" * 400, None) is None


VALUES: st.SearchStrategy[Any] = st.sampled_from([None, "", "error", "m", 0, [], {}, {"message": "m"}])
BODIES = st.dictionaries(st.sampled_from(["error", "object", "choices", "data", "detail", "message", "code"]), VALUES)


@given(BODIES)
def test_choices_without_an_error_key_are_never_an_error(body: dict[str, object]) -> None:
    """``ChunkReader.read`` skips ``error_in_body`` for these."""
    if body.get("choices") is not None and body.get("error") is None and body.get("object") != "error":
        assert error_in_body(body) is None
