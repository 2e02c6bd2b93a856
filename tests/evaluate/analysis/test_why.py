"""The first difference of rows, and the comparison of two runs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from gateway.evaluate.analysis.differences import differences_of
from gateway.evaluate.analysis.rows import ChosenToken, RowFacts, RunAnswer, RunRow
from gateway.evaluate.analysis.why import explain, measured_floor

FOUR = ChosenToken("4", -0.1, (("4", -0.1), ("5", -2.5)))
TWO = ChosenToken("2", -0.2, (("2", -0.2), ("3", -0.3)))
THREE = ChosenToken("3", -0.2, (("3", -0.2), ("2", -0.4)))
TOKENS = ((FOUR, TWO),)
FACTS = RowFacts(
    request="r",
    dataset_prompt="",
    template="t@sha256:1",
    prompt="<u>hi</u>",
    prompt_sha256="h",
    bos="engine ",
    prompt_ids="[[1,2]]",
    params={"temperature": 0, "stop": ["</u>"], "n": 1},
    route={},
    target="m/0",
    raw="42</u>",
    delivered="42",
    ends=("stop by gateway",),
    tokens=TOKENS,
)
ROW = RunRow("a", "m", answers=(RunAnswer("42", finish_reason="stop"),), facts=FACTS)
OTHER = (RunAnswer("43", finish_reason="stop"),)
SEEDED: dict[str, tuple[dict[str, Any], str]] = {
    "dataset row": ({"request": "other"}, "the client asked something else"),
    "prompt": ({"prompt": "<u>hi </u>", "prompt_sha256": "g", "template": "t@sha256:2"}, "byte 5, template"),
    "prompt ids": ({"prompt_ids": "[[0,1,2]]"}, "the token ids of the prompt"),
    "parameters": ({"params": {"temperature": 1, "stop": [], "n": 1}}, "temperature 0 → 1, stop ['</u>'] → []"),
    "route": ({"route": {"cache": "hit"}}, "cache absent → 'hit'"),
    "cut": ({"raw": "4", "ends": ("length",)}, "stop by gateway → length"),
    "reading": ({"delivered": "43"}, "the same text of the engine"),
    "sampled tokens": (
        {"raw": "43</u>", "tokens": ((FOUR, THREE),)},
        "character 1 of the answer",
    ),
}


def changed(*causes: str) -> RunRow:
    facts = {name: value for cause in causes for name, value in SEEDED[cause][0].items()}
    raw = {} if "reading" in causes else {"raw": "43</u>"}
    return replace(ROW, answers=OTHER, facts=replace(FACTS, **{**raw, **facts}))


@pytest.mark.parametrize("cause", SEEDED)
def test_one_difference_is_named_with_its_place(cause: str) -> None:
    found = differences_of(ROW, changed(cause))
    assert next(iter(found)) == cause
    assert found.keys() <= {cause, "sampled tokens"}
    assert SEEDED[cause][1] in found[cause]


@pytest.mark.parametrize("first", [name for name in SEEDED if name not in ("reading", "cut")])
def test_of_several_differences_the_earliest_cause_comes_first(first: str) -> None:
    later = [name for name in list(SEEDED)[list(SEEDED).index(first) + 1 :] if name not in ("reading", "cut")]
    assert list(differences_of(ROW, changed(*later, first, "sampled tokens"))) == list(dict.fromkeys([first, *later]))


def test_a_fact_that_is_not_recorded_is_no_difference() -> None:
    assert differences_of(ROW, replace(ROW, facts=RowFacts())) == {}
    assert explain([ROW], [replace(ROW, answers=OTHER, facts=RowFacts())]).found[0].cause == "sampled tokens"
    nothing = replace(ROW, answers=(), facts=RowFacts())
    assert explain([ROW], [nothing]).found[0].cause == "not recorded"


FIVE = ChosenToken("5", -2.5, (("4", -0.1), ("5", -2.5)))
NINE = ChosenToken("9", -0.1, (("9", -0.1), ("8", -2.5)))
REMARKED: dict[str, tuple[tuple[ChosenToken, ...] | None, str, str]] = {
    "twice the floor": ((FOUR, THREE), "near tie", "token '2' → '3', a near tie (gap 0.200, at most 0.200)"),
    "wide in one run": ((FIVE, TWO), "not the likeliest token at temperature 0", "'5' of the second run"),
    "not among the two likeliest": ((NINE, TWO), "wide gap", "'4' → '9', a wide gap (at least 2.400)"),
    "no log probabilities": (None, "gap not recorded", "gap not recorded (gateway run --evidence)"),
    "one answer ended": ((FOUR,), "gap not recorded", "'2' → the end, gap not recorded: one is not among"),
}


@pytest.mark.parametrize(("tokens", "kind", "text"), REMARKED.values(), ids=REMARKED)
def test_the_first_different_token_has_a_remark(tokens: Any, kind: str, text: str) -> None:
    b = replace(ROW, answers=OTHER, facts=replace(FACTS, raw="43</u>", tokens=None if tokens is None else (tokens,)))
    (found,) = explain([ROW], [b], floor=0.1).found
    assert (found.cause, found.remark) == ("sampled tokens", kind)
    assert text in found.differences["sampled tokens"]


def test_a_stop_among_the_likeliest_tokens_is_the_end_of_the_other_answer() -> None:
    a = replace(ROW, facts=replace(FACTS, tokens=((FOUR, replace(TWO, top=(("2", -0.2), ("</u>", -0.3)))),)))
    b = replace(ROW, answers=OTHER, facts=replace(FACTS, raw="4</u>", tokens=((FOUR,),)))
    assert "'2' → the end, a near tie (gap 0.100" in explain([a], [b]).found[0].differences["sampled tokens"]


@pytest.mark.parametrize(
    "params",
    [{"temperature": 1}, {"temperature": 0, "logit_bias": {"7": 5}}, {"temperature": 0, "use_beam_search": True}, {}],
)
def test_a_token_is_only_unlikely_if_the_likeliest_was_asked_for(params: dict[str, Any]) -> None:
    facts = replace(FACTS, params=params)
    b = replace(ROW, answers=OTHER, facts=replace(facts, raw="52</u>", tokens=((FIVE, TWO),)))
    assert explain([replace(ROW, facts=facts)], [b]).found[0].remark == "wide gap"


def test_the_floor_is_the_largest_shift_of_a_token_after_equal_tokens() -> None:
    shifted = (replace(FOUR, logprob=-0.12, top=(("4", -0.12), ("5", -2.46))), THREE, NINE)
    again = replace(ROW, facts=replace(FACTS, tokens=(shifted,)))
    assert measured_floor([ROW], [again]) == pytest.approx(0.2)  # of '2' at the first different place, never after it
    assert measured_floor([ROW], [replace(ROW, facts=replace(FACTS, tokens=None))]) is None


@pytest.mark.parametrize(
    ("raw", "ends", "cause"),
    [
        ("4", ("length",), "cut"),
        ("42</u>", ("length",), "cut"),
        ("4", ("stop by engine",), "sampled tokens"),
        ("42</u> and", ("length",), "sampled tokens"),
    ],
)
def test_an_end_that_the_model_chose_is_a_sampled_token(raw: str, ends: tuple[str, ...], cause: str) -> None:
    b = replace(ROW, answers=(RunAnswer(raw.removesuffix("</u>")),), facts=replace(FACTS, raw=raw, ends=ends))
    assert list(differences_of(ROW, b)) == [cause]


def test_a_limit_of_the_gateway_that_no_answer_reached_is_no_difference() -> None:
    a, b = (replace(FACTS, params={"max_tokens": limit}, default_limit=True) for limit in (497, 498))
    assert differences_of(replace(ROW, facts=a), replace(ROW, facts=b)) == {}
    assert (
        "max_tokens 497 → 498"
        in differences_of(replace(ROW, facts=a), replace(ROW, facts=replace(b, default_limit=False))).values()
    )


def test_who_adds_the_bos_is_no_part_of_the_prompt() -> None:
    b = replace(ROW, answers=OTHER, facts=replace(FACTS, bos="none ", prompt_ids=None, raw="43"))
    assert list(differences_of(ROW, b)) == ["prompt ids", "sampled tokens"]


def test_the_parts_of_the_causes_sum_to_the_difference_of_the_scores() -> None:
    rng = random.Random(7)
    a = [replace(ROW, custom_id=str(n)) for n in range(200)]
    b = [
        replace(changed(rng.choice(list(SEEDED))) if rng.random() < 0.3 else ROW, custom_id=str(n)) for n in range(200)
    ]
    rng.shuffle(b)
    a, b = [[replace(row, points=float(row.answers[0].text == "42")) for row in run] for run in (a, b)]
    found = explain(a, b)
    parts = found.by_cause()
    assert sum(part for _, part in parts.values()) == pytest.approx(found.difference().mean, abs=1e-12)
    assert sum(rows for rows, _ in parts.values()) == len(found.found) > 30
    assert found.difference().low < found.difference().mean < found.difference().high < 0


def test_a_row_that_differs_has_its_question_answers_and_scores() -> None:
    asked = {"messages": [{"role": "system", "content": "Add."}, {"role": "user", "content": "40+2=?"}]}
    a = replace(ROW, points=1.0, columns={"answer": 42}, read_asked=lambda **_: asked)
    b = replace(changed("prompt"), custom_id="a", points=0.5)
    unscored = replace(ROW, custom_id="b", points=float("nan"))
    found = explain([a, unscored], [b, replace(unscored, answers=OTHER)])
    one, other = found.found
    assert (one.question, one.expected, one.answers, one.points) == ("40+2=?", "42", ("42", "43"), (1.0, 0.5))
    assert other.points == (None, None)
    assert found.scores() == (1.0, 0.5)  # of the scored row alone
    assert found.as_json()["scores"] == found.scores()
    assert [row.custom_id for row in found.examples["prompt", one.where][1:]] == ["a", "a"]
    assert explain([ROW], [ROW]).scores() is None


def test_rows_are_grouped_with_their_part_of_the_change() -> None:
    a = [replace(ROW, custom_id=str(n), points=1.0) for n in range(4)]
    b = [replace(changed("prompt"), custom_id=str(n), points=n / 4) for n in range(3)]
    found = explain(a, [*b, a[3]]).grouped(lambda one: one.change < -0.5)
    assert found == {True: (2, -0.4375), False: (1, -0.125)}


def test_two_equal_runs_have_no_differing_row() -> None:
    rows = [replace(ROW, custom_id=str(n)) for n in range(50)]
    assert explain(rows, list(reversed(rows))).found == []


def test_rows_match_by_their_request_if_they_have_no_id() -> None:
    def row(name: str, request: str, text: str, repeat: int = 0) -> RunRow:
        facts = replace(FACTS, request=request, repeat=repeat)
        return replace(ROW, custom_id=name, answers=(RunAnswer(text),), facts=facts)

    a = [row("req_1", "x", "1"), row("req_2", "y", "2"), row("req_3", "y", "3"), row("req_4", "y", "4", repeat=1)]
    b = [row("req_5", "y", "2"), row("req_6", "y", "4", repeat=1), row("req_7", "y", "3"), row("req_8", "z", "5")]
    found = explain(a, b)
    assert (found.rows, found.only_a, found.only_b, found.found) == (3, 1, 1, [])


def test_the_number_of_a_line_is_no_id_if_the_lines_are_in_another_order() -> None:
    def row(name: str, request: str, text: str) -> RunRow:
        return replace(ROW, custom_id=name, answers=(RunAnswer(text),), facts=replace(FACTS, request=request))

    a = [row("line-1", "x", "1"), row("line-2", "y", "2"), row("line-3", "z", "3")]
    b = [row("line-1", "y", "2"), row("line-2", "x", "1"), row("line-3", "edited", "4")]
    found = explain(a, b)
    assert (found.rows, found.only_a, found.only_b) == (3, 0, 0)
    assert [(one.custom_id, one.cause) for one in found.found] == [("line-3", "dataset row")]


@pytest.mark.parametrize("in_b", [False, True])
def test_rows_with_one_id_twice_are_counted_and_not_guessed(in_b: bool) -> None:
    row = replace(ROW, facts=RowFacts())
    twice, once = [row, row, replace(row, custom_id="b")], [row]
    found = explain(once, twice) if in_b else explain(twice, once)
    assert (found.rows, found.ambiguous, found.only_a, found.only_b) == (0, 1, int(not in_b), int(in_b))


def test_a_row_does_not_take_the_place_of_an_equal_row_with_another_id() -> None:
    def row(name: str, text: str) -> RunRow:
        return replace(ROW, custom_id=name, answers=(RunAnswer(text),))

    found = explain([row("seventh", "7")], [row("fifth", "5"), row("seventh", "7")])
    assert (found.rows, found.found, found.only_a, found.only_b) == (1, [], 0, 1)


def test_a_row_without_a_recording_says_so() -> None:
    known = replace(ROW, answers=OTHER, facts=replace(FACTS, raw="43</u>"))
    (found,) = explain([ROW], [known]).found
    assert found.recorded
    (found,) = explain([ROW], [replace(known, facts=replace(FACTS, raw=None, prompt=None))]).found
    assert not found.recorded


def test_a_target_with_other_settings_is_a_route() -> None:
    a, b = (replace(FACTS, settings={"engine": engine, "model": "m"}) for engine in ("vllm", "sglang"))
    found = differences_of(replace(ROW, facts=a), replace(ROW, facts=b))
    assert found == {"route": "target engine 'vllm' → 'sglang'"}
    assert differences_of(replace(ROW, facts=a), ROW) == {}


def test_a_later_turn_does_not_differ_because_of_an_earlier_answer() -> None:
    first, last = replace(FACTS, prompt="<u>hi</u>"), replace(FACTS, prompt="<u>hi</u>42<u>and</u>", prompt_sha256="i")
    other = replace(last, prompt="<u>hi</u>43<u>and</u>", prompt_sha256="j")
    a = replace(ROW, facts=last, steps=(first, last))
    b = replace(ROW, answers=OTHER, facts=other, steps=(replace(first, raw="43</u>", tokens=None), other))
    (found,) = explain([a], [b]).found
    assert list(found.differences) == ["sampled tokens"]
    assert found.differences["sampled tokens"].startswith("request 1 of 2: character 1 of the answer, gap not recorded")


def test_the_label_of_a_replica_is_listed_and_no_cause() -> None:
    other = replace(ROW, facts=replace(FACTS, target="m/1"))
    found = explain([ROW], [other])
    assert (found.found, found.targets) == ([], {"m/0 → m/1": 1})
