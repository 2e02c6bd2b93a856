"""Log probabilities in the forms of completions and of chat."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.errors import UpstreamInvalidResponse
from gateway.wire.logprobs import from_chat, from_completions, to_chat, to_completions
from metatemplate.values.events import TokenLogprob

COMPLETIONS: dict[str, dict[str, Any]] = {  # written as they were read
    "echo, the first is null": {
        "tokens": ["<s>", "1", "+"],
        "token_logprobs": [None, -0.1234567890123, -9999.0],
        "top_logprobs": [None, {"1": -0.1234567890123, "2": -3.5}, {"-": -0.5}],
        "text_offset": [0, 3, 4],
    },
    "no alternatives": {"tokens": ["a"], "token_logprobs": [-1], "top_logprobs": None, "text_offset": [7]},
    "an empty set of alternatives": {
        "tokens": ["a"],
        "token_logprobs": [0.0],
        "top_logprobs": [{}],
        "text_offset": [0],
    },
    "one echoed token alone": {"tokens": ["a"], "token_logprobs": [None], "top_logprobs": [None], "text_offset": [0]},
    "echo without alternatives": {"tokens": ["a", "b"], "token_logprobs": [None, -0.5], "top_logprobs": None},
    "no offsets": {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5}]},
    "nothing": {"tokens": [], "token_logprobs": [], "top_logprobs": None, "text_offset": []},
}


@pytest.mark.parametrize("shape", COMPLETIONS.values(), ids=COMPLETIONS.keys())
def test_completions_arrays_are_written_as_they_were_read(shape: dict[str, Any]) -> None:
    back = to_completions(from_completions(shape))
    assert back == shape
    assert [type(number) for number in back["token_logprobs"]] == [type(number) for number in shape["token_logprobs"]]


def test_absent_and_null_arrays_give_no_logprobs() -> None:
    assert from_completions({}) == ()
    assert from_completions({"tokens": ["a"], "text_offset": None}) == (TokenLogprob("a", None),)


CHAT: dict[str, dict[str, Any]] = {
    "with alternatives": {
        "content": [
            {
                "token": "脷",
                "logprob": -0.25,
                "bytes": [232, 132, 183],
                "top_logprobs": [
                    {"token": "脷", "logprob": -0.25, "bytes": [232, 132, 183]},
                    {"token": "\ufffd", "logprob": -2.0, "bytes": [232]},
                    {"token": "\ufffd", "logprob": -3.0, "bytes": None},
                ],
            }
        ],
        "refusal": None,
    },
    "without": {"content": [{"token": "a", "logprob": 0, "bytes": [97], "top_logprobs": []}], "refusal": None},
    "nothing": {"content": [], "refusal": None},
}


@pytest.mark.parametrize("shape", CHAT.values(), ids=CHAT.keys())
def test_chat_objects_are_written_as_they_were_read(shape: dict[str, Any]) -> None:
    assert to_chat(from_chat(shape) or ()) == shape


def test_null_content_is_none_also_beside_a_refusal() -> None:
    assert from_chat({"content": None, "refusal": [{"token": "No", "logprob": -0.1}]}) is None


def test_completions_logprobs_become_chat_logprobs_with_known_bytes() -> None:
    tokens = from_completions(
        {"tokens": ["é", "\ufffd"], "token_logprobs": [-0.5, -1.5], "top_logprobs": [{"é": -0.5}, {"\ud83d": -1.5}]}
    )
    first, second = to_chat(tokens)["content"]
    assert first == {
        "token": "é",
        "logprob": -0.5,
        "bytes": [195, 169],
        "top_logprobs": [{"token": "é", "logprob": -0.5, "bytes": [195, 169]}],
    }
    assert second["bytes"] is None
    assert second["top_logprobs"][0]["bytes"] is None


def test_of_alternatives_with_equal_text_completions_keep_the_best() -> None:
    tokens = (TokenLogprob("\ufffd", -1.0, (("\ufffd", -1.0, (1,)), ("\ufffd", -2.0, (2,)))),)
    assert to_completions(tokens)["top_logprobs"] == [{"\ufffd": -1.0}]


BAD_COMPLETIONS: dict[str, dict[str, Any]] = {
    "fewer logprobs than tokens": {"tokens": ["a", "b"], "token_logprobs": [-1.0]},
    "more alternatives than tokens": {"tokens": ["a"], "top_logprobs": [None, None]},
    "fewer offsets": {"tokens": ["a"], "text_offset": []},
    "logprobs without tokens": {"token_logprobs": [-1.0]},
    "tokens not an array": {"tokens": "ab"},
    "a token not a string": {"tokens": [5], "token_logprobs": [-1.0]},
    "a logprob not a number": {"tokens": ["a"], "token_logprobs": ["-1"]},
    "a logprob of true": {"tokens": ["a"], "token_logprobs": [True]},
    "alternatives not an object": {"tokens": ["a"], "top_logprobs": [["a"]]},
    "an alternative without a number": {"tokens": ["a"], "top_logprobs": [{"a": None}]},
    "an offset not an integer": {"tokens": ["a"], "text_offset": [1.5]},
}
BAD_CHAT: dict[str, dict[str, Any]] = {
    "content not a list": {"content": {}},
    "an entry not an object": {"content": ["a"]},
    "no token": {"content": [{"logprob": -1.0}]},
    "bytes out of range": {"content": [{"token": "a", "logprob": -1.0, "bytes": [256]}]},
    "bytes of true": {"content": [{"token": "a", "logprob": -1.0, "bytes": [True]}]},
    "an alternative not an object": {"content": [{"token": "a", "logprob": -1.0, "top_logprobs": [1]}]},
}


@pytest.mark.parametrize("shape", BAD_COMPLETIONS.values(), ids=BAD_COMPLETIONS.keys())
def test_arrays_of_different_lengths_or_types_are_refused(shape: dict[str, Any]) -> None:
    with pytest.raises(UpstreamInvalidResponse, match="the model's server sent"):
        from_completions(shape)


@pytest.mark.parametrize("shape", BAD_CHAT.values(), ids=BAD_CHAT.keys())
def test_invalid_logprob_objects_are_refused(shape: dict[str, Any]) -> None:
    with pytest.raises(UpstreamInvalidResponse, match="the model's server sent"):
        from_chat(shape)
