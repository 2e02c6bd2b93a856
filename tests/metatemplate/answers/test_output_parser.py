"""Text becomes content, reasoning and tool calls; streamed or whole, in any slicing, the folded answer is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from gateway.stream.completion_builder import CompletionBuilder
from metatemplate.answers.output_parser import OutputParser, ParserOptions, call_id
from metatemplate.answers.tool_calls.format import ToolSchemas
from metatemplate.answers.tool_calls.registry import FORMATS
from metatemplate.values.answer_markers import Thinking, ToolTokens
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import Begun, Choice, Delta, Event, Finish, TokenLogprob, Usage
from tests.stream.slicing import slicings

TOOLS: ToolSchemas = {"add": {}, "now": {}}
HERMES = FORMATS["hermes"](ToolTokens(), TOOLS)
CALLS = ParserOptions(calls=HERMES, tools=TOOLS)
THINKS = ParserOptions(thinking=Thinking("<think>", "</think>"))
BOTH = ParserOptions(thinking=Thinking("<think>", "</think>", open=True), calls=HERMES, tools=TOOLS)
LAZY = ParserOptions(calls=FORMATS["lazyllm"](ToolTokens("<f>", "<a>", "<e>"), TOOLS), tools=TOOLS)

ADD = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
NOW = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'


def call(name: str, arguments: str, number: int = 0) -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def thought(text: str) -> dict[str, str]:
    return {"reasoning_content": text, "reasoning": text}


CASES: dict[str, tuple[ParserOptions, str, str, str, dict[str, Any], str]] = {
    # name: (reading, text, the engine's reason, content, other keys of the message, finish_reason)
    "plain text": (CALLS, "4", "stop", "4", {}, "stop"),
    "a call": (CALLS, f"So\n{ADD}", "stop", "So\n", {"tool_calls": [call("add", '{"a": 1}')]}, "tool_calls"),
    "two calls": (
        CALLS, f"{ADD}\n{NOW}", "stop", "",
        {"tool_calls": [call("add", '{"a": 1}'), call("now", "{}", 1)]}, "tool_calls",
    ),
    "a call, then out of room": (
        CALLS, f"{ADD}\n{NOW[:20]}", "length", f"\n{NOW[:20]}",
        {"tool_calls": [call("add", '{"a": 1}')]}, "length",
    ),
    "out of room in a call": (CALLS, NOW[:20], "length", NOW[:20], {}, "length"),
    "thinking": (THINKS, "<think>hm</think>\n4", "stop", "\n4", thought("hm"), "stop"),
    "calls are text where none may be": (THINKS, ADD, "stop", ADD, {}, "stop"),
    "a call in a thought": (BOTH, f"{ADD}</think>4", "stop", "4", thought(ADD), "stop"),
    "a thought, then a call": (
        BOTH, f"hm</think>\n\n{ADD}", "stop", "", {**thought("hm"), "tool_calls": [call("add", '{"a": 1}')]},
        "tool_calls",
    ),
    "only thinking": (BOTH, "hm", "length", "", thought("hm"), "length"),
    "a call that stops in place of its end token": (
        LAZY, "So\n<f>now", "stop", "So\n", {"tool_calls": [call("now", "{}")]}, "tool_calls",
    ),
    "a call that runs out of room": (LAZY, "So\n<f>now", "length", "So\n<f>now", {}, "length"),
    "a sentence that stops in place of an end token": (LAZY, "<f>now and then", "stop", "<f>now and then", {}, "stop"),
    "the first call only": (
        ParserOptions(calls=HERMES, tools=TOOLS, one_call=True), f"a{ADD}\n{NOW}b", "stop", "a",
        {"tool_calls": [call("add", '{"a": 1}')]}, "tool_calls",
    ),
    "a call the prompt began": (
        ParserOptions(calls=HERMES, tools=TOOLS, opened='<tool_call>{"name": "add", "arguments": '),
        '{"a": 1}}', "stop", "",
        {"tool_calls": [call("add", '{"a": 1}')]}, "tool_calls",
    ),
    "a call the prompt began, behind the thought": (
        ParserOptions(BOTH.thinking, HERMES, TOOLS, opened='</think>\n<tool_call>{"name": "'), 'now", "arguments": {}}',
        "stop", "", {"tool_calls": [call("now", "{}")]}, "tool_calls",
    ),
}  # fmt: skip


def read(reading: ParserOptions, batches: Sequence[Sequence[Event]]) -> tuple[list[Event], OutputParser]:
    numbers = count()
    reader = OutputParser(reading, new_id=lambda: f"call_{next(numbers)}")
    out = [event for batch in batches for event in reader.process(batch)]
    return [*out, *reader.flush()], reader


def folded(events: Sequence[Event]) -> Choice:
    fold = CompletionBuilder()
    for event in events:
        fold.add(event)
    return fold.result().choices[0]


@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_read_the_same_in_every_slicing(name: str) -> None:
    reading, text, reason, content, fields, finish = CASES[name]
    for slicing in slicings(text, 1):
        said: list[list[Event]] = [[Delta(0, piece)] for piece in slicing]
        batches: list[list[Event]] = [[Begun("m/0")], *said, [Finish(0, reason), Usage(1, 2)]]
        events, _ = read(reading, batches)
        choice = folded(events)
        assert (choice.text, dict(choice.fields), choice.finish.reason) == (content, fields, finish), slicing
        assert sum(isinstance(event, Finish) for event in events) == 1
        assert read(reading, [[event for batch in batches for event in batch]])[0][-1] == Usage(1, 2)


def test_the_name_comes_first_and_the_arguments_after_it() -> None:
    deltas = [event for event in read(CALLS, [[Delta(0, ADD + NOW)]])[0] if isinstance(event, Delta)]
    fragments = [delta.fields["tool_calls"][0] for delta in deltas]
    assert fragments[0] == {
        "index": 0,
        "id": "call_0",
        "type": "function",
        "function": {"name": "add", "arguments": ""},
    }
    assert fragments[1] == {"index": 0, "function": {"arguments": '{"a": 1}'}}
    assert [fragment["index"] for fragment in fragments] == [0, 0, 1, 1]


def test_ids_are_unlike_each_other() -> None:
    assert len({call_id() for _ in range(100)}) == 100
    assert call_id().startswith("call_")


def test_choices_are_read_by_themselves() -> None:
    batches: list[list[Event]] = [
        [Delta(0, ADD[:9]), Delta(1, "x")],
        [Delta(0, ADD[9:]), Delta(1, "y")],
        [Finish(1, "stop")],
    ]
    events, _ = read(CALLS, [*batches, [Finish(0, "stop")]])
    assert [(event.index, event.reason) for event in events if isinstance(event, Finish)] == [
        (1, "stop"),
        (0, "tool_calls"),
    ]
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "xy"


def test_the_answer_ends_with_its_first_call_before_the_engine_does() -> None:
    reader = OutputParser(ParserOptions(calls=HERMES, tools=TOOLS, one_call=True))
    out = reader.process([Delta(0, ADD)])
    assert out[-1] == Finish(0, "tool_calls", source="gateway")
    assert reader.process([Delta(0, "more"), Finish(0, "stop")]) == []


def test_scores_go_with_their_text_or_at_once() -> None:
    tokens = [(TokenLogprob(piece, -0.5),) for piece in ("a", "<tool", "_call> b")]
    batches = [[Delta(0, token[0].token, token)] for token in tokens]
    events, reader = read(CALLS, [*batches, [Finish(0, "stop")]])
    assert events == [
        Delta(0, "a", tokens[0]),
        Delta(0, "", tokens[1]),
        Delta(0, "<tool_call>", tokens[2]),
        Delta(0, " b"),
        Finish(0, "stop"),
    ]
    assert reader.failures == {"hermes": 1}


def test_what_the_prompt_wrote_is_no_failure_of_the_model() -> None:
    reading = ParserOptions(calls=HERMES, tools=TOOLS, opened="<tool_call>\n")
    events, reader = read(reading, [[Delta(0, "what?")], [Finish(0, "stop")]])
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "what?"
    assert reader.failures == {"hermes": 1}


@pytest.mark.parametrize("said", [[], [Delta(0, "")]])
def test_a_forced_answer_that_stays_empty_is_no_failure(said: list[Event]) -> None:
    reading = ParserOptions(calls=HERMES, tools=TOOLS, opened='<tool_call>\n{"name": "add", "arguments": ')
    events, reader = read(reading, [said, [Finish(0, "stop")]])
    assert "".join(event.text for event in events if isinstance(event, Delta)) == ""
    assert reader.failures == {}


def test_other_fields_and_extras_pass() -> None:
    assert read(CALLS, [[Delta(0, "a", extras={"token_ids": [1]})]])[0] == [Delta(0, "a", extras={"token_ids": [1]})]
    assert read(CALLS, [[Delta(0, "<", fields={"refusal": "no"})]])[0] == [
        Delta(0, "", fields={"refusal": "no"}),
        Delta(0, "<"),
    ]


CLOSED_BY: dict[str, tuple[tuple[str, ...], str | int | None, bool]] = {  # name: (the client's stops, matched, a call)
    "the model": ((), None, True),
    "its end token": ((), "<end>", True),
    "its end token, beside others": (("\n",), "<end>", True),
    "its end of text, beside others": (("\n",), 2, True),
    "another": (("\n",), "\n", False),
    "nobody knows": (("\n",), None, False),
}


@pytest.mark.parametrize("name", CLOSED_BY)
def test_a_call_by_its_name_alone_is_closed_by_the_model_only(name: str) -> None:
    stops, matched, called = CLOSED_BY[name]
    tokens, tools = ToolTokens("<do>", "<with>", "<end>"), {"delete": EMPTY_MAPPING}
    reading = ParserOptions(None, FORMATS["lazyllm"](tokens, tools), tools, foreign_stops=frozenset(stops))
    choice = folded(read(reading, [[Delta(0, "<do>delete")], [Finish(0, "stop", matched)]])[0])
    assert ("tool_calls" in choice.fields, choice.text) == ((True, "") if called else (False, "<do>delete"))


QWEN = ParserOptions(
    calls=FORMATS["qwen3_coder"](ToolTokens(), TOOLS), tools={"add": {"properties": {"a": {"type": "integer"}}}}
)


def noticed(reading: ParserOptions, text: str) -> tuple[list[str], dict[str, int]]:
    notices: list[str] = []
    parser = OutputParser(reading, notices)
    parser.flush([Delta(0, text), Finish(0, "stop")])
    return notices, dict(parser.failures)


def test_a_call_in_another_format_is_noticed_and_counted() -> None:
    xml = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
    assert noticed(CALLS, xml) == (["tool_call_not_read: choices[0]=qwen3_coder"], {"hermes": 1, "qwen3_coder": 1})
    assert noticed(CALLS, f"Like this:\n```\n{xml}\n```\n") == ([], {"hermes": 1})
    assert noticed(replace(CALLS, tools={}, calls=None), xml) == ([], {})


def test_a_call_in_reasoning_that_does_not_end_is_noticed_and_counted() -> None:
    assert noticed(BOTH, ADD) == (["tool_call_not_read: choices[0]=hermes"], {"hermes": 1})
    assert noticed(BOTH, f"{ADD}</think>4") == ([], {})


def test_a_call_of_an_unknown_tool_is_noticed() -> None:
    assert noticed(CALLS, ADD.replace("add", "rm")) == (["tool_call_not_read: choices[0]=hermes"], {"hermes": 1})


def test_an_argument_with_a_wrong_type_is_noticed() -> None:
    call = "<function=add><parameter=a>\n{}\n</parameter></function>"
    assert noticed(QWEN, call.format("12")) == ([], {})
    assert noticed(QWEN, call.format("twelve")) == (["mistyped_argument: add.a"], {})
    call = '<｜DSML｜invoke name="add">{}</｜DSML｜invoke>'
    argument = '<｜DSML｜parameter name="{}" string="false">x</｜DSML｜parameter>'
    text = call.format("".join(map(argument.format, ["a; b: c", "d", "e"])))
    reading = ParserOptions(calls=FORMATS["deepseek_v32"](ToolTokens(), TOOLS), tools=TOOLS)
    assert noticed(reading, text) == (["mistyped_argument: add.a??b??c and 2 more"], {})


def test_an_id_that_the_model_wrote_is_kept_once() -> None:
    one = "<|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    reading = ParserOptions(calls=FORMATS["kimi_k2"](ToolTokens(), TOOLS), tools=TOOLS)
    calls = folded(read(reading, [[Delta(0, one + one)], [Finish(0, "stop")]])[0]).fields["tool_calls"]
    assert [call["id"] for call in calls] == ["functions.add:0", "call_0"]


def test_reasoning_after_the_first_content_is_reasoning() -> None:
    thinking = Thinking("<|channel|>analysis<|message|>", "<|end|>")
    reading = ParserOptions(thinking, FORMATS["harmony"](ToolTokens(), TOOLS))
    text = (
        "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>commentary<|message|>So.<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>final<|message|>4"
    )
    for pieces in slicings(text):
        choice = folded(read(reading, [[Delta(0, piece) for piece in pieces], [Finish(0, "stop")]])[0])
        assert (choice.text, choice.fields) == ("So.4", thought("One.Two."))
