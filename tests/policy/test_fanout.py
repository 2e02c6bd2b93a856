"""Every choice that was asked for, whatever the engine takes at once."""

from __future__ import annotations

import pytest

from gateway.backend.scripted import Script, ScriptedBackend, Step
from gateway.core.events import Delta, Usage
from gateway.policy.deliver.begin import Begin
from gateway.policy.deliver.fanout import FanOut, Habits
from tests.policy.asking import Heard, ask, cancel_after, exchange, leave_after

UNSURE = Habits(lists=None, choices=None)
CAN = Habits(lists=True, choices=True)
CANNOT = Habits(lists=False, choices=False)


TOTAL = 10.0


def script(*texts: str, counted: bool = True) -> Script:
    """All choices in one answer, counted once."""
    steps: list[Step] = []
    for index, text in enumerate(texts):
        steps += [{"text": text, "index": index}, {"finish": "stop", "index": index}]
    return [*steps, {"usage": [7, 2]}] if counted else steps


def notices(heard: Heard) -> list[str]:
    return [notice for begun in heard.begun for notice in begun.notices]


def test_one_choice_passes_untouched() -> None:
    inner = ScriptedBackend(script("a"))
    asked = exchange("p", prompt_is_list=True)
    heard = ask(FanOut(inner, CAN, TOTAL), asked)
    assert (heard.texts, inner.heard, notices(heard)) == ({0: "a"}, [asked], [])


def test_a_list_of_one_is_sent_as_a_string_unless_lists_are_known_to_do() -> None:
    inner = ScriptedBackend(script("a"))
    ask(FanOut(inner, UNSURE, TOTAL), exchange("p", prompt_is_list=True))
    assert inner.heard == [exchange("p")]


def test_an_engine_that_takes_everything_gets_everything() -> None:
    inner = ScriptedBackend(script("a", "b", "c", "d"))
    heard = ask(FanOut(inner, CAN, TOTAL), exchange("p", "q", n=2))
    assert (heard.texts, len(inner.heard), notices(heard)) == ({0: "a", 1: "b", 2: "c", 3: "d"}, 1, [])
    assert heard.usages == [Usage(7, 2)]


def test_choices_an_engine_forgot_are_asked_for_one_by_one() -> None:
    inner = ScriptedBackend(script("a"), script("b"), script("c"))
    heard = ask(FanOut(inner, UNSURE, TOTAL), exchange("p", n=3, params={"seed": 40, "temperature": 1}))
    assert heard.texts == {0: "a", 1: "b", 2: "c"}
    assert heard.finishes == [(0, "stop"), (1, "stop"), (2, "stop")]
    assert [(one.n, one.params["seed"]) for one in inner.heard] == [(3, 40), (1, 41), (1, 42)]
    assert heard.usages == [Usage(21, 6)]
    assert notices(heard) == ["filled_choices: 2"]


def test_an_engine_known_to_ignore_n_is_not_asked_for_it() -> None:
    inner = ScriptedBackend(script("a"), script("b"))
    heard = ask(FanOut(inner, CANNOT, TOTAL), exchange("p", n=2, params={"seed": 1}))
    assert heard.texts == {0: "a", 1: "b"}
    assert [(one.n, one.params["seed"]) for one in inner.heard] == [(1, 1), (1, 2)]
    assert heard.usages == [Usage(14, 4)]
    assert notices(heard) == ["split_calls: 2"]


@pytest.mark.parametrize("code", ["upstream_rejected_request", "upstream_error"], ids=["with a 400", "with a 500"])
def test_a_list_that_is_refused_becomes_one_call_for_each_prompt(code: str) -> None:
    inner = ScriptedBackend([{"error": code}], script("a"), script("b"), script("c"))
    heard = ask(FanOut(Begin(inner, 1.0), UNSURE, TOTAL), exchange("p", "q", "r"))  # its gate makes ``open`` raise
    assert heard.texts == {0: "a", 1: "b", 2: "c"}
    assert [one.prompts for one in inner.heard] == [("p", "q", "r"), ("p",), ("q",), ("r",)]
    assert [one.prompt_is_list for one in inner.heard] == [True, False, False, False]
    assert heard.usages == [Usage(21, 6)]
    assert notices(heard) == ["split_calls: 3"]
    assert inner.active == 0


@pytest.mark.parametrize(
    ("habits", "code"),
    [(UNSURE, "context_length_exceeded"), (UNSURE, "upstream_auth_failed"), (CAN, "upstream_rejected_request")],
    ids=["another refusal", "an operator's mistake", "lists are known to do"],
)
def test_other_refusals_are_passed_on(habits: Habits, code: str) -> None:
    inner = ScriptedBackend([{"error": code}], script("a"))
    heard = ask(FanOut(Begin(inner, 1.0), habits, TOTAL), exchange("p", "q"))
    assert (heard.code, len(inner.heard)) == (code, 1)


def test_lists_times_choices_are_never_guessed_from_numbers_that_may_mean_either() -> None:
    # Two prompts with n=2, from an engine that may ignore n: its choice 1 would be prompt 1, or copy 1 of prompt 0.
    inner = ScriptedBackend(script("p0"), script("p1"), script("q0"), script("q1"))
    heard = ask(FanOut(inner, Habits(lists=True, choices=None), TOTAL), exchange("p", "q", n=2, params={"seed": 5}))
    assert heard.texts == {0: "p0", 1: "p1", 2: "q0", 3: "q1"}
    assert [(one.prompts, one.params["seed"]) for one in inner.heard] == [
        (("p",), 5), (("p",), 6), (("q",), 5), (("q",), 6),
    ]  # fmt: skip


def test_token_ids_keep_their_order_too() -> None:
    inner = ScriptedBackend(script("a"), script("b"))
    heard = ask(FanOut(inner, CANNOT, TOTAL), exchange(prompts=((1, 2), (3,)), prompt_is_list=True))
    assert heard.texts == {0: "a", 1: "b"}
    assert [one.prompts for one in inner.heard] == [((1, 2),), ((3,),)]


def test_a_call_that_fails_in_the_middle_ends_the_answer() -> None:
    inner = ScriptedBackend(script("a"), [{"error": "upstream_overloaded"}])
    heard = ask(FanOut(inner, CANNOT, TOTAL), exchange("p", "q"))
    assert (heard.texts, heard.code, heard.usages, inner.active) == ({0: "a"}, "upstream_overloaded", [], 0)


def test_usage_is_only_said_once_and_only_if_it_was_counted() -> None:
    inner = ScriptedBackend(script("a", counted=False))
    assert ask(FanOut(inner, CANNOT, TOTAL), exchange("p", "q")).usages == []


# Events in order: Begun, text and end of choice 0; then the nested call for choice 1.
@pytest.mark.parametrize("count", [0, 1, 2, 4], ids=["before", "during", "after the first event", "in a nested call"])
@pytest.mark.parametrize("habits", [UNSURE, CANNOT], ids=["filling up", "one by one"])
def test_leaving_early_closes_whatever_is_open(count: int, habits: Habits) -> None:
    inner = ScriptedBackend(["a", {"finish": "stop"}], ["b", "c", {"finish": "stop"}])
    nested = count == 4
    extra = nested and habits is UNSURE  # the notice that choices were filled up
    leave_after(FanOut(inner, habits, TOTAL), count + extra, exchange("p", n=2))
    assert inner.active == 0
    assert len(inner.heard) == (2 if nested else 1)
    assert inner.left_early == 1


def test_a_hang_up_in_a_nested_call_closes_it() -> None:
    inner = ScriptedBackend(["a", {"finish": "stop"}], ["b", {"pause": 9}, "c"])
    cancel_after(FanOut(inner, CANNOT, TOTAL), 0.05, exchange("p", "q", "r"))
    assert (inner.active, inner.left_early, len(inner.heard)) == (0, 1, 2)


def test_choices_of_nested_calls_are_numbered_anew() -> None:
    heard = ask(FanOut(ScriptedBackend(script("x")), CANNOT, TOTAL), exchange("p", "q", "r"))
    assert [event.index for event in heard.events if isinstance(event, Delta)] == [0, 1, 2]
