"""The log probabilities of a prompt in an answer: which tokens are the prompt's, and which answers are refused."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.errors import UpstreamError, UpstreamIgnoredParameter, UpstreamInvalidResponse
from gateway.stream.prompt_logprobs import echoed_logprobs, listed_logprobs
from metatemplate.values.events import Begun, Choice, Completion, Finish, TokenLogprob, Usage

PROMPT = "12+3="


def answer(text: str = PROMPT, tokens: list[str] | None = None, counts: tuple[int, int] | None = (5, 0)) -> Completion:
    """An answer whose tokens have -1 each, except the first."""
    known = None
    if tokens is not None:
        known = tuple([TokenLogprob(token, -1.0 if number else None) for number, token in enumerate(tokens)])
    usage = Usage(*counts) if counts is not None else None
    return Completion((Choice(0, text, Finish(0, "length"), known),), usage)


ECHOED = {  # name: (the answer's text, its tokens, counts of prompt and answer, how many tokens are the prompt's)
    "no bos": (PROMPT + "4", ["12", "+", "3", "=", "4"], (4, 1), 4),
    "a bos that is only counted": (PROMPT + "4", ["12", "+", "3", "=", "4"], (5, 1), 4),
    "a bos in the list": (PROMPT + "4", ["<s>", "12", "+", "3", "=", "4"], (5, 1), 5),
    "an end token in the list": (PROMPT, ["12", "+", "3", "=", "</s>"], (4, 1), 4),
    "an end token without text": (PROMPT, ["12", "+", "3", "=", ""], (5, 1), 4),
    "nothing generated": (PROMPT, ["12", "+", "3", "="], (4, 0), 4),
    "several tokens in spite of max_tokens": (PROMPT + "15", ["12", "+", "3", "=", "1", "5"], (4, 2), 4),
    "a special token without text": (PROMPT + "4", ["12", "+", "3", "", "4"], (4, 1), 4),
    "bytes in place of text": (PROMPT + "4", ["12", "\ufffd", "\ufffd", "=", "4"], (4, 1), 4),
}


@pytest.mark.parametrize("name", ECHOED)
def test_the_tokens_of_an_echoed_prompt_end_before_the_generated_ones(name: str) -> None:
    text, tokens, counts, number = ECHOED[name]
    assert [token.token for token in echoed_logprobs(answer(text, tokens, counts), PROMPT)] == tokens[:number]


def test_the_bos_of_the_engine_may_come_first_in_the_echo() -> None:
    tokens = echoed_logprobs(answer("<s>" + PROMPT + "4", ["<s>", "12", "+", "3", "=", "4"], (5, 1)), PROMPT)
    assert [token.token for token in tokens] == ["<s>", "12", "+", "3", "="]


def test_the_bos_of_a_template_may_be_missing_in_the_echo() -> None:
    tokens = echoed_logprobs(answer(PROMPT, ["12", "+", "3", "="], (5, 0)), "<s>" + PROMPT, "<s>")
    assert [token.token for token in tokens] == ["12", "+", "3", "="]


DOUBTS: dict[str, tuple[Completion, type[UpstreamError]]] = {
    "another text": (answer("4", ["4"], (4, 1)), UpstreamIgnoredParameter),
    "no log probabilities": (answer(PROMPT), UpstreamIgnoredParameter),
    "log probabilities of the answer alone": (answer(PROMPT + "4", ["4"], (4, 1)), UpstreamInvalidResponse),
    "no usage": (answer(PROMPT, ["12", "+", "3", "="], None), UpstreamInvalidResponse),
    "a token too few": (answer(PROMPT, ["12", "+", "3"], (4, 0)), UpstreamInvalidResponse),
    "a token too many": (answer(PROMPT, ["1", "2", "+", "3", "="], (4, 0)), UpstreamInvalidResponse),
    "more generated than listed": (answer(PROMPT, ["12", "+"], (4, 5)), UpstreamInvalidResponse),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_an_echo_with_a_doubt_is_refused(name: str) -> None:
    completion, error = DOUBTS[name]
    with pytest.raises(error):
        echoed_logprobs(completion, PROMPT)


def test_a_token_without_log_probability_is_refused_by_its_number() -> None:
    tokens = (TokenLogprob("1", None), TokenLogprob("2", -1.0), TokenLogprob("3", None))
    completion = Completion((Choice(0, "123", Finish(0, "length"), tokens),), Usage(3, 0))
    with pytest.raises(UpstreamInvalidResponse, match="token 3"):
        echoed_logprobs(completion, "123")


ROWS = [None, {"5": {"logprob": -1.5, "rank": 1, "decoded_token": "a"}}, {"9": {"logprob": -2}}]


def listed(rows: Any, *, on_top: bool = False, counts: tuple[int, int] | None = (3, 1)) -> Completion:
    """An answer with ``prompt_logprobs``, of the choice or on top."""
    fields = {"prompt_logprobs": rows}
    choice = Choice(0, "x", Finish(0, "length"), None, {}, {} if on_top else fields)
    begun = Begun("m/0", fields if on_top else {})
    return Completion((choice,), Usage(*counts) if counts is not None else None, begun)


@pytest.mark.parametrize("on_top", [False, True], ids=["of the choice", "on top"])
@pytest.mark.parametrize("counts", [(3, 1), None], ids=["with usage", "without usage"])
def test_listed_tokens_have_their_ids_and_numbers(on_top: bool, counts: tuple[int, int] | None) -> None:
    tokens = listed_logprobs(listed(ROWS, on_top=on_top, counts=counts))
    assert [(token.token, token.logprob) for token in tokens] == [("", None), ("5", -1.5), ("9", -2)]


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (None, UpstreamIgnoredParameter),
        ([], UpstreamIgnoredParameter),
        ({"0": ROWS}, UpstreamInvalidResponse),
        (ROWS[:2], UpstreamInvalidResponse),
        ([*ROWS[:2], None], UpstreamInvalidResponse),
        ([*ROWS[:2], {}], UpstreamInvalidResponse),
        ([*ROWS[:2], {"1": {"logprob": -1}, "2": {"logprob": -2}}], UpstreamInvalidResponse),
        ([*ROWS[:2], {"1": -0.5}], UpstreamInvalidResponse),
        ([*ROWS[:2], {"1": {"logprob": True}}], UpstreamInvalidResponse),
    ],
    ids=["absent", "empty", "no list", "one too few", "null", "no entry", "two tokens", "no object", "no number"],
)
def test_a_list_with_a_doubt_is_refused(rows: Any, error: type[UpstreamError]) -> None:
    with pytest.raises(error):
        listed_logprobs(listed(rows))
