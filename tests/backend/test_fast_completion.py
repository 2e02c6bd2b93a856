"""The straight ways of ordinary calls: they give exactly what the general code gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.backend.engines import ENGINES
from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.completions import CompletionsBackend
from gateway.backend.openai.events import CHAT, COMPLETIONS, Answer, Shape
from gateway.backend.openai.fast_completion import ordinary_whole
from gateway.core.errors import GatewayError, UpstreamInvalidResponse
from gateway.core.events import Begun, Delta, Event, Finish, Usage
from gateway.core.exchange import Exchange
from gateway.core.prompt import Bos
from tests.backend.ask import exchange, target

# ---------------------------------------------------------------- what goes up

PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0, 0.5]),
        "max_tokens": st.just(5),
        "echo": st.booleans(),
        "logprobs": st.sampled_from([0, 1, False]),
        "top_k": st.just(-1),
        "add_special_tokens": st.booleans(),
        "stop_token_ids": st.sampled_from([[], [7], [True], None, "7"]),
        "strange": st.just(1),
    },
)
EXCHANGES = st.fixed_dictionaries(
    {},
    optional={
        "prompts": st.sampled_from([(), ("a",), ("<s>a",), ("",), ((1, 2),), ("a", "<s>b"), ("a", (1,))]),
        "prompt_is_list": st.booleans(),
        "params": PARAMS,
        "n": st.sampled_from([1, 2]),
        "stops": st.sampled_from([(), ("x",), ("x", "y")]),
        "stop_token_ids": st.sampled_from([(), (3,)]),
        "stream": st.booleans(),
        "stream_options": st.sampled_from([{}, {"include_obfuscation": False}]),
        "bos": st.sampled_from(get_args(Bos)),
        "bos_text": st.sampled_from(["", "<s>"]),
    },
)


@pytest.mark.parametrize("adds_bos", [None, True, False])
@pytest.mark.parametrize("engine", ENGINES)
@given(asked=EXCHANGES)
def test_an_ordinary_request_goes_up_as_the_general_one(
    engine: str, adds_bos: bool | None, asked: Mapping[str, Any]
) -> None:
    backend = CompletionsBackend(target("http://127.0.0.1:1/v1", engine=engine, adds_bos=adds_bos), HttpClient())
    one = Exchange("completions", "req-1", **asked)
    straight = backend.ordinary(one)
    try:
        general = backend.general(one)
    except GatewayError:
        assert straight is None
    else:
        assert straight in (None, general)


ORDINARY: Mapping[str, Mapping[str, Any]] = {
    "bare": {},
    "with parameters": {"params": {"temperature": 0, "max_tokens": 5}},
    "with stops": {"stops": ("<|im_end|>",), "stop_token_ids": (7,)},
    "several choices": {"n": 3},
    "a stream": {"stream": True},
    "BOS in the text": {"bos": "text", "bos_text": "<s>"},
    "BOS from the engine": {"bos": "engine"},
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_requests_take_the_straight_way(name: str) -> None:
    backend = CompletionsBackend(target("http://127.0.0.1:1/v1", engine="vllm"), HttpClient())
    one = exchange(**{"stream": False, **ORDINARY[name]})
    assert backend.ordinary(one) == backend.general(one)


# ---------------------------------------------------------------- what comes back whole

ODD: list[Any] = [None, "", "a", 0, 1, True, [], {}, {"x": 1}, 1.5]
MESSAGE = st.fixed_dictionaries(
    {"content": st.sampled_from(["a", "a b", None, "", 1])},
    optional={
        "role": st.just("assistant"),
        "tool_calls": st.sampled_from([None, [], [{"id": "x"}]]),
        "refusal": st.sampled_from([None, "", "no"]),
    },
)
CHOICE = st.fixed_dictionaries(
    {"finish_reason": st.sampled_from(["stop", "length", "eos", "STOP", "abort", "tired", "", None, 1])},
    optional={
        "index": st.sampled_from([0, 0, 0, 1, 2, None, True, "0"]),
        "text": st.sampled_from(["a", "a b", *ODD]),
        "message": MESSAGE | st.sampled_from(ODD),
        "delta": st.none() | MESSAGE,
        "logprobs": st.none() | st.sampled_from(ODD),
        "stop_reason": st.sampled_from([None, None, "x"]),
        "token_ids": st.sampled_from([None, None, [1]]),
    },
)
COUNTS = st.fixed_dictionaries(
    {"prompt_tokens": st.sampled_from([1, 1, 0, -1, True, None, "1"])},
    optional={
        "completion_tokens": st.sampled_from([1, 0, -1, 1.5]),
        "total_tokens": st.just(2),
        "prompt_tokens_details": st.sampled_from([None, {"cached_tokens": 1}]),
    },
)
WHOLE = st.fixed_dictionaries(
    {"choices": st.lists(CHOICE, min_size=1, max_size=2) | st.sampled_from(ODD)},
    optional={
        "id": st.sampled_from(["x", None]),
        "object": st.sampled_from(["text_completion", "error", None]),
        "usage": COUNTS | st.sampled_from(ODD),
        "error": st.sampled_from([None, "", "bad", {"message": "bad"}]),
        "system_fingerprint": st.sampled_from([None, "fp"]),
        "message": st.just("x"),
    },
)


def carefully(said: object, shape: Shape, asked: int) -> list[Event]:
    answer = Answer(shape, "m/0", asked, ("a notice",))
    answer.invalid = UpstreamInvalidResponse
    events = answer.take(said)
    return [*events, *answer.end()]


@pytest.mark.parametrize("shape", [COMPLETIONS, CHAT], ids=["completions", "chat"])
@given(said=WHOLE, asked=st.sampled_from([1, 2]))
def test_a_whole_answer_says_the_same_either_way(shape: Shape, said: dict[str, Any], asked: int) -> None:
    straight = ordinary_whole(said, shape, "m/0", ("a notice",))
    try:
        expected = carefully(said, shape, asked)
    except GatewayError:
        assert straight is None
    else:
        assert straight in (None, expected)


COUNTED = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
ANSWERS: Mapping[str, tuple[Shape, Mapping[str, Any], Mapping[str, Any]]] = {
    "completions": (COMPLETIONS, {"index": 0, "text": "a", "logprobs": None, "finish_reason": "stop"}, {}),
    "completions of vllm": (
        COMPLETIONS,
        {"index": 0, "text": "a", "logprobs": None, "finish_reason": "stop", "stop_reason": None, "token_ids": None},
        {"service_tier": None, "system_fingerprint": None, "kv_transfer_params": None},
    ),
    "without an index": (COMPLETIONS, {"text": "a", "finish_reason": "eos"}, {}),
    "chat": (CHAT, {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}, {}),
    "chat of vllm": (
        CHAT,
        {
            "index": 0,
            "message": {"role": "assistant", "content": "a", "refusal": None, "tool_calls": []},
            "finish_reason": "stop",
            "stop_reason": None,
        },
        {"error": None},
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_ordinary_whole_answers_take_the_straight_way(name: str) -> None:
    shape, choice, more = ANSWERS[name]
    said = {"id": "x", "object": "y", "created": 1, "model": "m", "choices": [choice], "usage": COUNTED, **more}
    expected = [Begun("m/0", notices=("a notice",)), Delta(0, "a"), Finish(0, "stop"), Usage(3, 2)]
    assert ordinary_whole(said, shape, "m/0", ("a notice",)) == expected == carefully(said, shape, 1)
