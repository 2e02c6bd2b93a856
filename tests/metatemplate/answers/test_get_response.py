"""The answer in the whole text of a model, as LazyLLM's ``get_response`` finds it."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from gateway.stream.completion_builder import CompletionBuilder
from metatemplate.answers.get_response import AnswerExtraction
from metatemplate.answers.output_parser import OutputParser, ParserOptions
from metatemplate.answers.tool_calls.registry import FORMATS
from metatemplate.values.answer_markers import Thinking, ToolTokens
from metatemplate.values.events import Delta, Event, Finish, TokenLogprob
from tests.stream.slicing import slicings
from tests.support.reference.lazyllm.prompter import alpaca, chat, empty

PROMPT = "Below.\n\n### Response:\n"
MARK = "### Response:\n"

TEXTS: dict[str, tuple[str, str]] = {  # name: (the model's text, the answer)
    "an answer": ("4", "4"),
    "a repeated prompt": (f"{PROMPT}4", "4"),
    "a repeated prompt before a mark": (f"{PROMPT}4\n{MARK}5", f"4\n{MARK}5"),
    "a mark": (f"So\n{MARK}4", "4"),
    "two marks": (f"{MARK}4\n{MARK}5", "5"),
    "a mark at the end": (f"4\n{MARK}", ""),
    "a mark without its line break": ("4 ### Response: 5", "4 ### Response: 5"),
    "a begun prompt": ("Below.\n", "Below.\n"),
    "nothing": ("", ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_answer_follows_the_prompt_or_the_last_mark(name: str) -> None:
    text, answer = TEXTS[name]
    assert AnswerExtraction(PROMPT, MARK).answer(text) == answer == alpaca("{a}").get_response(text, PROMPT)


@pytest.mark.parametrize("text", ["a<A>\nb<A>\nc", "a<A>b", "<A>\n", "p: x"])
def test_a_chat_prompter_splits_at_its_mark_and_an_empty_one_nowhere(text: str) -> None:
    marked = chat("I").bound({"soa": "<A>"})
    assert AnswerExtraction("p: ", "<A>\n").answer(text) == marked.get_response(text, "p: ")
    assert (
        AnswerExtraction("p: ", "").answer(text)
        == empty().get_response(text, "p: ")
        == chat().get_response(text, "p: ")
    )


def folded(options: ParserOptions, events: list[Event]) -> tuple[str, dict[str, Any], str]:
    ids = count()
    parser, builder = OutputParser(options, new_id=lambda: f"call_{next(ids)}"), CompletionBuilder()
    for event in events:
        for one in parser.process([event]):
            builder.add(one)
    for one in parser.flush():
        builder.add(one)
    (choice,) = builder.result().choices
    return choice.text, dict(choice.fields), choice.finish.reason


LAZY = FORMATS["lazyllm"](ToolTokens("<f>", "<a>", "<e>"), frozenset({"f"}))
ANSWERS: dict[str, tuple[ParserOptions, str, str, dict[str, Any], str]] = {
    "text": (ParserOptions(), f"So\n{MARK}4", "4", {}, "stop"),
    "reasoning": (
        ParserOptions(thinking=Thinking("<t>", "</t>", fields=("reasoning",))),
        f"<t>no</t>\n{MARK}<t>hm</t>4",
        "4",
        {"reasoning": "hm"},
        "stop",
    ),
    "a call": (
        ParserOptions(calls=LAZY, tools={"f": {}}),
        f"<f>f<a>{{}}<e>{MARK}Well.<f>f<a>{{a: 1}}<e>",
        "Well.",
        {"tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]},
        "tool_calls",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_is_the_same_in_every_slicing(name: str) -> None:
    options, text, content, fields, reason = ANSWERS[name]
    options = ParserOptions(
        thinking=options.thinking, calls=options.calls, tools=options.tools, extraction=AnswerExtraction(PROMPT, MARK)
    )
    for pieces in slicings(text):
        events: list[Event] = [*[Delta(0, piece) for piece in pieces], Finish(0, "stop")]
        assert folded(options, events) == (content, fields, reason)


def test_a_failed_answer_keeps_its_text_and_log_probabilities_are_sent_at_once() -> None:
    parser = OutputParser(ParserOptions(extraction=AnswerExtraction(PROMPT, MARK)))
    token = TokenLogprob("So", -0.5)
    (sent,) = parser.process([Delta(0, "So", (token,))])
    assert isinstance(sent, Delta)
    assert (sent.text, sent.logprobs) == ("", (token,))
    assert parser.flush() == [Delta(0, "So")]
