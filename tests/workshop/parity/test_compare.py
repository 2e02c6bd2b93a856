"""Verdicts, the first difference, BOS and tokens of a comparison."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.library import Library
from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.workshop.parity.cases import Case, matrix
from gateway.workshop.parity.compare import CaseResult, TokenComparison, compare
from gateway.workshop.parity.sides import Side, side_of
from metatemplate.files.reader import Files
from metatemplate.templates.registry import build, first_difference
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Prompt
from tests.metatemplate.templates.samples import API, template
from tests.support.serving import ROOT
from tests.workshop.parity.samples import BOT, HUMAN, SYSTEM, chat, ours

CASES = matrix(("<s>",))
ONE = Case("one", ({"role": "user", "content": "hé"},))
TALK = "<|user|>hé<|end|>\n<|assistant|>"


def one(result: tuple[CaseResult, ...]) -> CaseResult:
    (only,) = result
    return only


def test_a_meta_template_and_the_chat_template_it_repeats_are_the_same() -> None:
    results = compare(ours(), chat(), CASES)
    verdicts = {result.verdict for result in results}
    assert verdicts == {"same", "refused by both"}
    assert all(
        bool(result.case.tools or "calls" in result.case.name) == (result.verdict == "refused by both")
        for result in results
    )
    assert sum(result.case.whole and result.verdict == "same" for result in results) == 3


PRESETS = sorted(path.stem for path in (ROOT / "meta_templates").glob("*.yaml") if not path.stem.startswith("api"))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_the_same_as_itself(name: str) -> None:
    files = Files(ROOT)
    spec = Library(files).template(name, files.add_problem(ROOT))
    assert spec is not None
    results = compare(build(spec), build(spec), CASES)
    assert not [result for result in results if result.is_different]
    assert any(result.verdict == "same" for result in results)


def test_a_chat_template_is_the_same_as_itself() -> None:
    assert {result.verdict for result in compare(chat(), chat(), CASES)} <= {"same", "refused by both"}


def test_the_place_is_counted_in_bytes_and_begins_a_character() -> None:
    broken = ours(round=[HUMAN, {**BOT, "begin": "<|bot|>"}])
    result = one(compare(broken, chat(), [ONE]))
    assert (result.verdict, result.at) == ("differs", len("<s><|user|>hé<|end|>\n<|".encode()))
    assert (result.ours.text, result.reference.text) == (
        "<s><|user|>hé<|end|>\n<|bot|>",
        "<s><|user|>hé<|end|>\n<|assistant|>",
    )


BOS: dict[str, tuple[dict[str, Any], bool, str]] = {
    # keys of ours, does the engine add a BOS, what the model sees before the talk
    "the template writes it": ({}, False, "<s>"),
    "the template writes it and the engine is told to add none": ({}, True, "<s>"),
    "the engine adds it": ({"bos": "engine", "begin": None, "bos_text": None}, False, "<s>"),
    "the engine adds a second": ({"bos": "engine", "bos_text": None}, False, "<s><s>"),
    "the template leaves it out": ({"bos": None, "begin": None, "bos_text": None}, False, ""),
    "left to an engine that adds one": ({"bos": None, "begin": None, "bos_text": None}, True, "<s>"),
    "left to an engine that adds a second": ({"bos": None, "bos_text": None}, True, "<s><s>"),
}


@pytest.mark.parametrize(("keys", "adds_bos", "seen"), BOS.values(), ids=BOS)
def test_what_is_compared_is_what_the_model_sees(keys: dict[str, Any], adds_bos: bool, seen: str) -> None:
    side = side_of(ours(**keys), adds_bos=adds_bos)
    result = one(compare(side, chat(), [ONE], bos_token="<s>"))
    assert result.ours.text == seen + TALK
    assert result.reference.text == "<s>" + TALK
    assert result.verdict == ("same" if seen == "<s>" else "differs")


def test_a_bos_of_unknown_text_has_a_placeholder() -> None:
    engine = ours(bos="engine", begin=None, bos_text=None)
    assert one(compare(engine, engine, [ONE])).ours.text == "<BOS>" + TALK
    # the other side's own word for it is better than none
    assert one(compare(engine, ours(), [ONE])).verdict == "same"


def test_a_function_can_be_the_reference() -> None:
    def reference(dialogue: Dialogue) -> Prompt:
        if dialogue.options.continue_final:
            raise InvalidValue("it never goes on", param="continue_final_message")
        turns = "".join([f"<|{m.role}|>{m.text}<|end|>\n" for m in dialogue.messages])
        return Prompt(f"<s>{turns}<|assistant|>")

    results = {result.case.name: result for result in compare(ours(), Side(reference), CASES)}
    assert results["five turns"].verdict == "same"
    assert results["one tool"].verdict == "refused by ours"
    assert results["whole, one turn"].verdict == "not compared"
    went_on = results["continued"]
    assert (went_on.verdict, went_on.reference.code) == ("refused by the reference", "invalid_value")
    assert went_on.reference.refused == "continue_final_message: it never goes on"
    assert went_on.is_different
    assert not went_on.ours.refused


def test_a_template_that_makes_messages_has_no_text_to_compare() -> None:
    with pytest.raises(UnsupportedParameter, match="makes messages"):
        compare(template(API), chat(), CASES)


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


TOKENS: dict[str, tuple[str, TokenComparison]] = {
    # what the reference begins with instead of <s>, and what is found
    "the same": ("<s>", TokenComparison(len(TALK) + 3, len(TALK) + 3, None)),
    "another": ("<S>", TokenComparison(len(TALK) + 3, len(TALK) + 3, 1, ord("s"), ord("S"))),
    "one less": ("", TokenComparison(len(TALK) + 3, len(TALK), 1, ord("s"), ord("|"))),
}


@pytest.mark.parametrize(("begin", "tokens"), TOKENS.values(), ids=TOKENS)
def test_tokens_are_counted_and_the_first_other_one_is_named(begin: str, tokens: TokenComparison) -> None:
    result = one(compare(ours(), Side(lambda _: Prompt(begin + TALK)), [ONE], tokenize=letters))
    assert result.tokens == tokens


def test_a_text_that_ends_first_has_no_token_there() -> None:
    result = one(compare(ours(), Side(lambda _: Prompt(f"<s>{TALK}"[:-1])), [ONE], tokenize=letters))
    assert result.tokens == TokenComparison(len(TALK) + 3, len(TALK) + 2, len(TALK) + 2, ord(">"), None)


def test_nothing_is_tokenized_that_was_refused() -> None:
    results = compare(ours(), chat(), CASES, tokenize=letters)
    assert all((result.tokens is None) == (result.verdict == "refused by both") for result in results)


@given(st.text(), st.text(), st.text())
def test_the_first_difference_follows_the_longest_common_prefix(begin: str, ours: str, reference: str) -> None:
    left, right = begin + ours, begin + reference
    at = first_difference(left, right)
    assert left[:at] == right[:at]
    assert at >= len(begin)
    assert at in (len(left), len(right)) or left[at] != right[at]


WORDS = st.text(st.sampled_from("<|>ab \n"), max_size=6)


@given(WORDS, WORDS, WORDS, WORDS, WORDS, WORDS)
def test_any_template_is_the_same_as_itself(a: str, b: str, c: str, d: str, e: str, f: str) -> None:
    keys = {
        "round": [{**HUMAN, "begin": a, "end": b}, {**BOT, "begin": c, "end": d}],
        "reserved_roles": [{**SYSTEM, "begin": e, "end": f}],
    }
    results = compare(ours(**keys), ours(**keys), CASES)
    assert not [result for result in results if result.is_different or result.causes]
