"""Finish reasons: engines' words in OpenAI's, and lies refused."""

from __future__ import annotations

import pytest

from gateway.core.errors import UpstreamError, UpstreamIncomplete, UpstreamInvalidResponse
from gateway.stream.finish_reason import FINISH_REASONS, finish_reason

OPENAI = {"stop", "length", "tool_calls", "content_filter", "function_call"}


def test_the_table_says_openais_words_only() -> None:
    assert set(FINISH_REASONS.values()) == OPENAI
    assert {finish_reason(word) for word in OPENAI} == OPENAI


REASONS = {
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "COMPLETE": "stop",
    "MAX_TOKENS": "length",
    "max_tokens": "length",
    "tool-calls": "tool_calls",
    "content-filter": "content_filter",
    "SAFETY": "content_filter",
    "": None,
    None: None,
}


@pytest.mark.parametrize(("raw", "reason"), REASONS.items())
def test_engines_words_are_mapped(raw: str | None, reason: str | None) -> None:
    assert finish_reason(raw) == reason


ERRORS = {
    "abort": UpstreamIncomplete,
    "cancelled": UpstreamIncomplete,
    "insufficient_system_resource": UpstreamIncomplete,
    "error": UpstreamError,
    "sunset": UpstreamInvalidResponse,
    5: UpstreamInvalidResponse,
}


@pytest.mark.parametrize(("raw", "error"), ERRORS.items())
def test_no_lie_becomes_a_stop(raw: object, error: type[UpstreamError]) -> None:
    with pytest.raises(error) as caught:
        finish_reason(raw)
    assert type(caught.value) is error


def test_an_unknown_reason_is_named_short_and_escaped() -> None:
    with pytest.raises(UpstreamInvalidResponse) as caught:
        finish_reason("\n脷" + "x" * 100)
    assert caught.value.message.isascii()
    assert len(caught.value.message) < 120
