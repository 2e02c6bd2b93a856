"""The table of values that cannot change an answer."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.backend.engines import CHAT_PARAMS, COMPLETIONS_PARAMS
from gateway.backend.openai.request.neutral_values import NEUTRAL_VALUES, is_neutral, without_neutral_values
from gateway.wire.request_fields import HINTS
from tests.backend.ask import chat_exchange
from tests.support.serving import ROOT

ASKS: list[tuple[str, Any]] = [
    ("logprobs", 0),  # of completions: the chosen tokens
    ("logprobs", True),
    ("presence_penalty", 0.1),
    ("presence_penalty", False),
    ("best_of", 2),
    ("tool_choice", "none"),
    ("parallel_tool_calls", False),
    ("service_tier", "flex"),
    ("user", "me"),
    ("temperature", 1),
    ("top_p", 1),
    ("seed", 0),
]


@pytest.mark.parametrize(("name", "value"), ASKS)
def test_a_value_that_may_change_an_answer_is_not_neutral(name: str, value: Any) -> None:
    assert not is_neutral(name, value)


@pytest.mark.parametrize("value", [0, 0.0, -0.0])
def test_zero_of_any_numeric_type_is_neutral(value: float) -> None:
    assert is_neutral("presence_penalty", value)


STREAM_OPTIONS = {"stream_options.continuous_usage_stats", "stream_options.include_obfuscation"}


def test_the_table_has_only_fields_of_openai_and_vllms_usage_option() -> None:
    assert NEUTRAL_VALUES.keys() - CHAT_PARAMS - COMPLETIONS_PARAMS == STREAM_OPTIONS


def test_the_documentation_lists_the_table() -> None:
    text = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    [line] = [line for line in text.splitlines() if line.startswith("- Some values cannot change an answer:")]
    assert {*re.findall(r"`(\w+): ", line), *STREAM_OPTIONS} == NEUTRAL_VALUES.keys()


def test_the_documentation_lists_the_hints() -> None:
    text = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    [line] = [line for line in text.splitlines() if line.startswith("- Hints cannot change an answer")]
    assert {*re.findall(r"`(\w+)`", line)} == HINTS


def test_only_unknown_fields_are_left_out() -> None:
    exchange = chat_exchange(params={"user": "", "logit_bias": {}, "seed": 1, "top_k": 0})
    kept, notices = without_neutral_values(exchange, {"logit_bias"})
    assert dict(kept.params) == {"logit_bias": {}, "seed": 1, "top_k": 0}
    assert notices == ("omitted_parameter: user",)
    assert kept.attempts is exchange.attempts
