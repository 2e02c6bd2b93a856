"""The parsers of an answer follow from the template and the request."""

from __future__ import annotations

from typing import Any

import pytest

from metatemplate.answers.output_parsing import OutputParsing
from metatemplate.errors import InvalidInput
from metatemplate.templates.registry import output_parsing
from metatemplate.templates.spec import FamilyMarkers, JinjaSpec, TemplateSpec, ToolsSpec
from metatemplate.values.answer_markers import Thinking
from metatemplate.values.dialogue import Dialogue, RenderOptions
from metatemplate.values.prompt import Prompt, PromptMetadata
from tests.metatemplate.templates.samples import message

ADD, NOW = ({"type": "function", "function": {"name": name}} for name in ("add", "now"))
TOOLS = ToolsSpec("hermes")
USER = message("user", "hi")
CLOSED, OPEN = Thinking("<think>", "</think>"), Thinking("<think>", "</think>", open=True)


def reading(spec: TemplateSpec, *messages: Any, **requested: Any) -> Any:
    return OutputParsing(spec).of(
        Dialogue(messages or (USER,), RenderOptions(**requested)), Prompt("", PromptMetadata(opened="<tool_call>"))
    )


def spec(**declared: Any) -> TemplateSpec:
    return TemplateSpec("t", "meta", **declared)


def test_a_template_without_reasoning_and_tools_has_no_output_parsing() -> None:
    assert output_parsing(spec()) is None
    assert output_parsing(spec(thinking=CLOSED)) is not None


@pytest.mark.parametrize(
    ("begin", "tokens", "kept"),
    [("<think>", ("<|im_end|>",), False), ("<|channel>thought\n", ("<|channel>", "<|im_end|>"), True)],
)
def test_special_tokens_stay_in_the_text_if_they_mark_reasoning(
    begin: str, tokens: tuple[str, ...], kept: bool
) -> None:
    markers = FamilyMarkers("a test", tokens)
    assert reading(spec(thinking=Thinking(begin, "</think>"), markers=markers)).keep_special is kept
    folder = JinjaSpec((), further_special_tokens=tokens)
    assert reading(spec(thinking=Thinking(begin, "</think>"), jinja=folder)).keep_special is kept
    assert reading(spec(thinking=CLOSED, markers=markers, tools=TOOLS), tools=(ADD,)).keep_special


def test_a_format_with_channels_is_read_without_tools() -> None:
    found = reading(spec(tools=ToolsSpec("harmony")))
    assert (found.calls.name, found.tools, found.keep_special) == ("harmony", {}, True)


ASKED: dict[str, tuple[dict[str, Any], set[str], bool]] = {  # name: (request, tools that may be called, only one call)
    "no tools": ({}, set(), False),
    "tools": ({"tools": (ADD, NOW)}, {"add", "now"}, False),
    "none": ({"tools": (ADD, NOW), "tool_choice": "none"}, set(), False),
    "required": ({"tools": (ADD, NOW), "tool_choice": "required"}, {"add", "now"}, False),
    "named": ({"tools": (ADD, NOW), "tool_choice": ADD}, {"add"}, False),
    "one at a time": ({"tools": (ADD,), "parallel_calls": False}, {"add"}, True),
}


@pytest.mark.parametrize("name", ASKED)
def test_tool_calls_are_parsed_if_the_request_allows_them(name: str) -> None:
    requested, names, one_call = ASKED[name]
    found = reading(spec(tools=TOOLS), **requested)
    if not names:
        assert found is None
        return
    assert (set(found.tools), found.one_call, found.opened) == (names, one_call, "<tool_call>")
    assert (found.calls is not None, found.thinking) == (True, None)


@pytest.mark.parametrize("name", ["get-weather", "class", "a.if", "9lives", "a."])
def test_a_name_that_the_format_cannot_carry_is_refused(name: str) -> None:
    tools = (ADD, {"type": "function", "function": {"name": name}})
    with pytest.raises(InvalidInput, match="pythonic") as refused:
        reading(spec(tools=ToolsSpec("pythonic")), tools=tools)
    assert refused.value.param == "tools[1].function.name"
    assert name in reading(spec(tools=TOOLS), tools=tools).tools
    assert reading(spec(tools=ToolsSpec("pythonic")), tools=tools, tool_choice="none") is None
    assert reading(spec(tools=ToolsSpec("pythonic")), tools=tools, tool_choice=ADD).tools == {"add": {}}


@pytest.mark.parametrize(("text", "inside"), [("A: <think>\n", True), ("A: <think></think>\n", False), ("A: ", False)])
def test_with_open_auto_the_prompt_decides_where_the_answer_begins(text: str, inside: bool) -> None:
    declared = OutputParsing(spec(thinking=Thinking("<think>", "</think>", open="auto")))
    found = declared.of(Dialogue((USER,)), Prompt(text))
    assert found is not None
    assert found.thinking == Thinking("<think>", "</think>", inside)


GOES_ON: dict[str, tuple[Thinking, str, bool | None]] = {
    # name: (thinking, the message so far, the answer begins inside the reasoning; None: it has no reasoning)
    "nothing said": (CLOSED, "", False),
    "nothing said, open": (OPEN, "", True),
    "in the reasoning": (CLOSED, "\n<think>hm", True),
    "in the reasoning, open": (OPEN, "hm", True),
    "behind it": (CLOSED, "<think>hm</think>4", None),
    "behind it, open": (OPEN, "hm</think>", None),
    "without reasoning": (CLOSED, "4", None),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_a_continued_message_keeps_its_reasoning_state(name: str) -> None:
    thinking, text, inside = GOES_ON[name]
    found = reading(spec(thinking=thinking), USER, message("assistant", text), continue_final=True)
    if inside is None:
        assert found is None
    else:
        assert found.thinking == Thinking("<think>", "</think>", inside)


def test_stops_of_the_client_are_foreign_stops() -> None:
    requested = Dialogue((USER,), RenderOptions(tools=(ADD,)))
    found = OutputParsing(spec(tools=TOOLS)).of(
        requested, Prompt("", PromptMetadata(stops=("<eoa>",))), ("<eoa>", "\n")
    )
    assert found is not None
    assert found.foreign_stops == {"\n"}
