"""``kind: prompter``: prompts of requests, and refusals that name what does not fit."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatemplate.errors import InputError, InvalidInput, UnknownRole, UnsupportedInput, UnsupportedMedia
from metatemplate.files.template import SpecError, parse_spec
from metatemplate.templates.registry import build
from metatemplate.values.dialogue import Dialogue, Message, Part, RenderOptions
from metatemplate.values.prompt import Prompt
from tests.metatemplate.templates.samples import API, PLAIN, dialogue, message, template
from tests.support.reference.lazyllm.names import tokens_for
from tests.support.reference.lazyllm.prompter import alpaca, chat

ROOT = Path(__file__).parents[3]

CHAT: dict[str, Any] = {"kind": "prompter", "class": "chat", "marks_of": "qwen"}
RAG: dict[str, Any] = {**CHAT, "instruction": "From {context}:"}
TWO: dict[str, Any] = {
    **CHAT,
    "instruction": {"system": "As {who}.", "user": "Q: {question}"},
    "input_slot": "question",
}
ALPACA: dict[str, Any] = {"kind": "prompter", "class": "alpaca", "instruction": "Add {sum}"}
EMPTY: dict[str, Any] = {"kind": "prompter", "class": "empty"}
TOOLS: dict[str, Any] = {**CHAT, "tools": {"parser": "lazyllm"}}

U, A, S, T = "user", "assistant", "system", "tool"
TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def rendered(raw: dict[str, Any], *turns: tuple[str, Any], **said: Any) -> Prompt:
    return template(raw).render(dialogue(*turns, **said))


def refused(raw: dict[str, Any], said: Dialogue) -> InputError:
    with pytest.raises(InputError) as caught:
        template(raw).render(said)
    return caught.value


# ---------------------------------------------------------------- the same bytes as the library's


QWEN = tokens_for("qwen2-7b")

SAME: dict[str, tuple[dict[str, Any], Dialogue, str]] = {  # name: (file, dialogue, what the library writes)
    "one slot, filled by the message": (
        {**CHAT, "instruction": "Act on {x}!"},
        dialogue((U, "v")),
        chat("Act on {x}!").bound(QWEN).generate_prompt("v"),
    ),
    "one slot, filled by a variable": (
        RAG,
        dialogue((U, "q"), variables={"context": "C"}),
        chat("From {context}:").bound(QWEN).generate_prompt({"context": "C", "input": "q"}),
    ),
    "a slot called input, filled by a variable": (
        {**CHAT, "instruction": "On {input}:"},
        dialogue((U, "q"), variables={"input": "I"}),
        chat("On {input}:").bound(QWEN).generate_prompt({"input": "I", "rest": "q"}),
    ),
    "two parts": (
        TWO,
        dialogue((U, "h"), (A, "a"), (U, "q"), variables={"who": "me"}),
        chat({"system": "As {who}.", "user": "Q: {question}"})
        .bound(QWEN)
        .generate_prompt({"who": "me", "question": "q"}, history=[["h", "a"]]),
    ),
    "extra keys": (
        {**CHAT, "instruction": "I", "extra_keys": ["k", "m"]},
        dialogue((U, "q"), variables={"k": "1", "m": "2"}),
        chat("I", ["k", "m"]).bound(QWEN).generate_prompt({"k": "1", "m": "2", "input": "q"}),
    ),
    "turns that the template brings": (
        {**CHAT, "history": [["h", "a"]]},
        dialogue((U, "q")),
        chat(history=[["h", "a"]]).bound(QWEN).generate_prompt("q"),
    ),
    "an answer to go on with": (
        CHAT,
        dialogue((U, "q"), (A, "So"), continue_final=True),
        chat().bound(QWEN).generate_prompt("q", label="So"),
    ),
    "alpaca": (ALPACA, dialogue((U, "a+b")), alpaca("Add {sum}").generate_prompt("a+b")),
    "alpaca, an answer to go on with": (
        ALPACA,
        dialogue((U, "a+b"), (A, "c"), continue_final=True),
        alpaca("Add {sum}").generate_prompt("a+b", label="c"),
    ),
    "empty": (EMPTY, dialogue((U, "\n{as} it is")), "\n{as} it is"),
}


@pytest.mark.parametrize("name", SAME)
def test_the_prompt_is_that_of_the_reference(name: str) -> None:
    raw, said, expected = SAME[name]
    assert template(raw).render(said).text == expected


TALK = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["{a}", "{{", "<!lazyllm-spliter!>", "</!lazyllm-spliter!>", "\n", "<|im_end|>", "<!gateway-system!>"]
)
CALLS = {"tools": {"parser": "lazyllm"}}
WEATHER = (
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {"a b": {}}}}},
    {"type": "function", "function": {"name": "then", "description": 'Say "é".'}},
)
SHAPES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {  # name: (file, the variables it takes)
    "tools": ({**CHAT, **CALLS}, ()),
    "tools and an instruction": ({**CHAT, **CALLS, "instruction": "Do."}, ()),
    "tools and a variable": ({**CHAT, **CALLS, "instruction": "Do {x} now"}, ("x",)),
    "tools and two parts": ({**CHAT, **CALLS, "instruction": {"system": "S", "user": "U"}}, ()),
    "tools where the instruction wants them": (
        {**CHAT, **CALLS, "instruction": "A <!lazyllm-fc-prompt!> of {tool_names}."},
        (),
    ),
    "tools and turns of its own": ({**CHAT, **CALLS, "history": [["h", "a"]]}, ()),
    "alpaca with tools": ({**ALPACA, **CALLS, "marks_of": "qwen"}, ()),
    "plain": (CHAT, ()),
    "a slot for the message": ({**CHAT, "instruction": "Do {x} now"}, ()),
    "a slot for a variable": ({**CHAT, "instruction": "Do {x} now, {x}!"}, ("x",)),
    "two variables": ({**CHAT, "instruction": {"system": "{x}", "user": "{y}"}}, ("x", "y")),
    "a variable and the message": (TWO, ("who",)),
    "a slot at the end of the system part": ({**CHAT, "instruction": {"system": "S{x}", "user": "U"}}, ()),
    "a slot in the middle of it": ({**CHAT, "instruction": {"system": "S{x}!", "user": "U"}}, ()),
    "a slot in the user part": ({**CHAT, "instruction": {"system": "S", "user": "<{x}>"}}, ()),
    "no slot, two parts": ({**CHAT, "instruction": {"system": "S", "user": "U"}}, ()),
    "turns of its own": ({**CHAT, "history": [["h", "a"]]}, ()),
    "no end tokens": ({"kind": "prompter", "class": "chat", "marks_of": "glm-4"}, ()),
    "no system, no tokens": ({"kind": "prompter", "class": "chat", "marks": {"system": ""}}, ()),
    "a leading line break": ({"kind": "prompter", "class": "chat", "marks": {"system": "\n\nS"}}, ()),
    "alpaca": (ALPACA, ()),
    "alpaca in two parts": (
        {**ALPACA, "instruction": {"system": "As {who}", "user": "{q}"}, "input_slot": "q"},
        ("who",),
    ),
    "alpaca without a system sentence": ({**ALPACA, "marks": {"system": ""}}, ()),
}


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=25, deadline=None)
@given(system=st.none() | TALK, rounds=st.lists(st.tuples(TALK, TALK), max_size=3), last=TALK, value=TALK)
def test_the_fast_and_the_general_form_write_the_same(
    shape: str, system: str | None, rounds: list[tuple[str, str]], last: str, value: str
) -> None:
    raw, names = SHAPES[shape]
    turns = [turn for human, answer in rounds for turn in ((U, human), (A, answer))]
    turns = [] if raw["class"] == "alpaca" else turns
    turns = [*([] if system is None else [(S, system)]), *turns, (U, last)]
    made, variables = template(raw), {name: f"{value}{name}" for name in names}
    tools = WEATHER if "tools" in raw else ()
    plain = made.render(dialogue(*turns, tools=tools, variables=variables))
    in_parts = [message(role, [{"type": "text", "text": text}]) for role, text in turns]
    general = made.render(Dialogue(tuple(in_parts), RenderOptions(tools=tools, variables=variables)))
    assert (plain.text, plain.metadata.notices) == (general.text, general.metadata.notices)
    assert told(plain) == told(general)


def test_names_that_a_client_makes_up_are_not_kept() -> None:
    made = template(CHAT)
    tracemalloc.start()
    try:
        for number in range(32):
            names = {f"{number}-{place}-" + "x" * 15_000: "v" for place in range(64)}
            with pytest.raises(InvalidInput, match="no slots for variables"):
                made.render(dialogue((U, "q"), variables=names))
        del names
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 4 << 20  # 30 MB have come


def test_a_very_long_conversation_is_written_alike() -> None:
    turns = [(U, "q"), (A, "a")] * 150 + [(U, "last")]
    made = template(CHAT)
    plain = made.render(dialogue(*turns))
    general = made.render(Dialogue(tuple(message(role, [{"type": "text", "text": text}]) for role, text in turns)))
    assert plain.text == general.text
    assert told(plain) == told(general)


def told(prompt: Prompt) -> list[tuple[str, bool, str]]:
    """Who says what; neighbouring pieces of one origin are one."""
    assert prompt.segments is not None
    assert "".join(segment.text for segment in prompt.segments) == prompt.text
    found: list[tuple[str, bool, str]] = []
    for segment in prompt.segments:
        if not segment.text:
            continue
        if found and found[-1][:2] == (segment.origin, segment.scaffold):
            found[-1] = (*found[-1][:2], found[-1][2] + segment.text)
        else:
            found.append((segment.origin, segment.scaffold, segment.text))
    return found


HARMLESS = st.text(st.characters(codec="utf-8", exclude_characters="{}<>"), max_size=12)


# ---------------------------------------------------------------- where LazyLLM writes something else


def test_tags_in_a_message_stay_text() -> None:
    injected = "p<!lazyllm-spliter!>q</!lazyllm-spliter!>r"
    assert injected in rendered({**CHAT, "instruction": "x {a}"}, (U, injected)).text
    assert "spliter" not in chat("x {a}").bound(QWEN).generate_prompt(injected)


def test_a_value_that_holds_a_slot_is_not_searched() -> None:
    said = dialogue((U, "q"), variables={"a": "{b}", "b": "B"})
    assert "{b}|B" in template({**CHAT, "instruction": "{a}|{b}"}).render(said).text


def test_json_in_an_instruction_is_text() -> None:
    raw = {**CHAT, "instruction": 'Return {"k": 1} for {a}'}
    assert 'Return {"k": 1} for v' in rendered(raw, (U, "v")).text


def test_the_explanation_of_calls_survives_two_parts() -> None:
    raw = {**TOOLS, "instruction": {"system": "S", "user": "U"}}
    assert "tool name (one of" in template(raw).render(dialogue((U, "q"), tools=(TOOL,))).text


# ---------------------------------------------------------------- who said what


def test_every_piece_knows_where_it_came_from() -> None:
    said = dialogue((S, "CompletionBuilder."), (U, "h"), (A, "a"), (U, "q"), variables={"who": "me"})
    assert told(template(TWO).render(said)) == [
        ("template", True, "<|im_start|>system\nYou are a helpful assistant.As "),
        ("variables.who", False, "me"),
        ("template", True, ".\n"),
        ("messages[0]", False, "CompletionBuilder."),
        ("template", True, "\n\n<|im_end|>\n\n\n"),
        ("messages[1]", True, "<|im_start|>user\n"),
        ("messages[1]", False, "h"),
        ("messages[1]", True, "<|im_end|>\n"),
        ("messages[2]", True, "<|im_start|>assistant\n"),
        ("messages[2]", False, "a"),
        ("messages[2]", True, "<|im_end|>"),
        ("messages[3]", True, "\n<|im_start|>user\n\n"),
        ("template", True, "Q: "),
        ("messages[3]", False, "q"),
        ("messages[3]", True, "\n<|im_end|>\n"),
        ("generate", True, "<|im_start|>assistant\n\n"),
    ]


def test_tools_and_their_results_are_content() -> None:
    said = Dialogue(
        (message(U, "q"), message(A, None, tool_calls=[CALL]), message(T, '{"ok": true}', tool_call_id="c")),
        RenderOptions(tools=(TOOL,)),
    )
    prompt = template(TOOLS).render(said)
    content = {origin: text for origin, scaffold, text in told(prompt) if not scaffold}
    assert content["messages[2]"] == '{"ok": true}'
    assert prompt.text.endswith(
        "<|im_start|>assistant\n<|action_start|><|function|>\nf<|args|>{a: 1}<|action_end|>\n<|im_end|>"
        '\n<|im_start|>environment\n\n{"ok": true}\n<|im_end|>\n<|im_start|>assistant\n\n'
    )
    assert prompt.metadata.notices == ()


def test_a_call_that_is_demanded_is_begun_for_the_model() -> None:
    force = {"begin": "<|action_start|><|function|>", "end": "<|args|>"}
    raw = {**CHAT, "tools": {"parser": "lazyllm", "force": force}}
    named = {"type": "function", "function": {"name": "f"}}
    prompt = template(raw).render(dialogue((U, "q"), tools=(TOOL,), tool_choice=named))
    assert prompt.text.endswith("<|im_start|>assistant\n\n<|action_start|><|function|>f<|args|>")
    assert prompt.metadata.opened == "<|action_start|><|function|>f<|args|>"
    assert ("tool_choice", False, "f") in told(prompt)
    assert refused(TOOLS, dialogue((U, "q"), tools=(TOOL,), tool_choice="required")).param == "tool_choice"
    without = template(TOOLS).render(dialogue((U, "q"), tools=(TOOL,), tool_choice="none"))
    assert without.text == rendered(CHAT, (U, "q")).text


def test_system_messages_are_written_into_the_instruction_and_reported() -> None:
    prompt = rendered({**CHAT, "instruction": "I"}, (S, "a"), (U, "q"), ("developer", "b"), (A, "x"), (U, "r"))
    assert prompt.text.startswith("<|im_start|>system\nYou are a helpful assistant.I\n\na\nb\n\n<|im_end|>")
    assert [str(notice) for notice in prompt.metadata.notices] == [
        "system_folded: messages[0]: written into the instruction",
        "system_folded: messages[2]: written into the instruction",
    ]


def test_a_tool_result_in_the_history_is_shown_as_python_prints_it_and_reported() -> None:
    turns = [(U, "q"), (T, '{"ok": true, "n": "\\ud83d\\ude00"}'), (T, "plain"), (A, "a"), (U, "r")]
    prompt = rendered(TOOLS, *turns)
    assert "environment\n{'ok': True, 'n': '😀'}<|im_end|>" in prompt.text
    assert "environment\nplain<|im_end|>" in prompt.text
    assert [str(notice) for notice in prompt.metadata.notices] == [
        "tool_result_printed: messages[1]: JSON shown as Python prints it"
    ]


def test_fields_that_are_left_out_are_reported() -> None:
    said = Dialogue((message(U, "q", name="x"),))
    assert [str(notice) for notice in template(CHAT).render(said).metadata.notices] == [
        "ignored_field: messages[0].name"
    ]


# ---------------------------------------------------------------- what a request cannot have


REFUSED: dict[str, tuple[dict[str, Any], Dialogue, type[InputError], str, str]] = {
    # name: (file, dialogue, error, param, part of the message)
    "a variable is missing": (
        {**CHAT, "instruction": "{a} {b}"}, dialogue((U, "q"), variables={"a": "1"}),
        InvalidInput, "gateway.variables", "accepts the variables a, b; missing: b",
    ),
    "several slots and no variables": (
        {**CHAT, "instruction": "{a} {b}"}, dialogue((U, "q")),
        InvalidInput, "gateway.variables", "missing: a, b",
    ),
    "an unknown variable": (
        RAG, dialogue((U, "q"), variables={"context": "C", "z": "1"}),
        InvalidInput, "gateway.variables", "accepts the variables context; leave out 'z'",
    ),
    "variables without slots": (
        CHAT, dialogue((U, "q"), variables={"z": "1"}), InvalidInput, "gateway.variables", "has no slots",
    ),
    "a variable that is no text": (
        RAG, dialogue((U, "q"), variables={"context": 5}), InvalidInput, "gateway.variables.context", "must be text",
    ),
    "the user's slot as a variable": (
        TWO, dialogue((U, "q"), variables={"who": "w", "question": "x"}),
        InvalidInput, "gateway.variables.question", "leave question out",
    ),
    "alpaca's only slot as a variable": (
        ALPACA, dialogue((U, "q"), variables={"sum": "x"}), InvalidInput, "gateway.variables", "leave the variable out",
    ),
    "alpaca with a history": (
        ALPACA, dialogue((U, "q"), (A, "a"), (U, "r")), InvalidInput, "messages", "accepts only a single user message",
    ),
    "empty with a history": (EMPTY, dialogue((U, "q"), (A, "a"), (U, "r")), InvalidInput, "messages", "earlier turns"),
    "empty with a system message": (EMPTY, dialogue((S, "s"), (U, "q")), InvalidInput, "messages", "system message"),
    "empty with an answer to go on with": (
        EMPTY, dialogue((U, "q"), (A, "a"), continue_final=True),
        InvalidInput, "continue_final_message", "assistant message that is to be continued",
    ),
    "an assistant at the end": (CHAT, dialogue((U, "q"), (A, "a")), InvalidInput, "messages", "last message must"),
    "only a system message": (CHAT, dialogue((S, "s")), InvalidInput, "messages", "last message must"),
    "a user's message to go on with": (
        CHAT, dialogue((U, "q"), continue_final=True),
        InvalidInput, "continue_final_message", "an assistant message as the last message",
    ),
    "a call to go on with": (
        TOOLS, Dialogue((message(U, "q"), message(A, "", tool_calls=[CALL])), RenderOptions(continue_final=True)),
        InvalidInput, "continue_final_message", "has tool_calls and cannot be continued",
    ),
    "an unknown role": (CHAT, dialogue(("critic", "x"), (U, "q")), UnknownRole, "messages[0].role", "critic"),
    "a tool where none are written": (
        CHAT, dialogue((U, "q"), (T, "x")), UnknownRole, "messages[1].role", "supported roles: system",
    ),
    "tools where none are written": (
        CHAT, dialogue((U, "q"), tools=(TOOL,)), UnsupportedInput, "tools", "has no key `tools`",
    ),
    "calls where none are written": (
        CHAT, Dialogue((message(A, "", tool_calls=[CALL]), message(U, "q"))),
        UnsupportedInput, "messages[0].tool_calls", "cannot write tool_calls",
    ),
    "a call without a name": (
        TOOLS, Dialogue((message(A, "", tool_calls=[{"function": {}}]), message(U, "q"))),
        InvalidInput, "messages[0].tool_calls[0].function.name", "is missing; write",
    ),
    "arguments that are no JSON": (
        TOOLS,
        Dialogue((message(A, "", tool_calls=[{"function": {"name": "f", "arguments": "{"}}]), message(U, "q"))),
        InvalidInput, "messages[0].tool_calls[0].function.arguments", "holds a JSON object",
    ),
    "a tool without a name": (
        TOOLS, dialogue((U, "q"), tools=({"type": "function"},)),
        InvalidInput, "tools[0].function.name", "is missing; write",
    ),
    "a picture": (
        CHAT, Dialogue((Message(U, "", (Part("image_url"),)),)),
        UnsupportedMedia, "messages[0].content[0]", "accepts only text",
    ),
    "tool results where the message has a slot": (
        {**TWO, "tools": {"parser": "lazyllm"}},
        Dialogue((message(U, "q"), message(T, "r")), RenderOptions(variables={"who": "w"})),
        InvalidInput, "messages", "the last message must be a user message",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_does_not_fit_is_a_400_that_says_where(name: str) -> None:
    raw, said, kind, param, part = REFUSED[name]
    error = refused(raw, said)
    assert (type(error), error.param) == (kind, param)
    assert part in error.message


@pytest.mark.parametrize(
    "raw", [PLAIN, {**PLAIN, "turns": "opencompass"}, API, {"kind": "chat"}, {"kind": "jinja", "template": "hi"}]
)
def test_templates_without_slots_refuse_variables(raw: dict[str, Any]) -> None:
    error = refused(raw, dialogue((U, "q"), variables={"a": "b"}))
    assert error.param == "gateway.variables"


def test_messages_before_a_conversation_are_refused_in_a_string() -> None:
    with pytest.raises(UnsupportedInput, match="history_messages, which only API models get"):
        template({**CHAT, "history_messages": [{"role": "user", "content": "a"}]}).render(dialogue((U, "q")))


# ---------------------------------------------------------------- what a file cannot say


MISTAKES: dict[str, tuple[dict[str, Any], tuple[str | int, ...], str]] = {
    "no class": ({"kind": "prompter"}, ("class",), "write one of alpaca, chat, empty"),
    "a misspelt class": ({"kind": "prompter", "class": "alpacca"}, ("class",), 'did you mean "alpaca"?'),
    "a strange key": ({**CHAT, "round": []}, ("round",), "unknown key"),
    "the old spelling": ({**CHAT, "extro_keys": ["a"]}, ("extro_keys",), 'did you mean "extra_keys"?'),
    "an unknown family": ({**CHAT, "marks_of": "qwem"}, ("marks_of",), 'did you mean "qwen"?'),
    "an unknown mark": ({**CHAT, "marks": {"bos": "x"}}, ("marks", "bos"), "unknown key"),
    "a mark that is no text": ({**CHAT, "marks": {"sos": 5}}, ("marks", "sos"), "must be text"),
    "a strange part": ({**CHAT, "instruction": {"sys": "x"}}, ("instruction", "sys"), 'did you mean "system"?'),
    "an instruction that is a list": ({**CHAT, "instruction": ["x"]}, ("instruction",), "must be a mapping or a text"),
    "an extra key that is no slot": ({**RAG, "extra_keys": ["a b"]}, ("extra_keys", 0), "is not a valid slot name"),
    "an input slot that is none": ({**RAG, "input_slot": "x"}, ("input_slot",), "its slots: context"),
    "a history that is no pair": ({**CHAT, "history": [["a"]]}, ("history", 0), "must be a pair"),
    "alpaca with a history": ({**ALPACA, "history": [["a", "b"]]}, ("history",), "has only one turn"),
    "a message without a role": (
        {**CHAT, "history_messages": [{"content": "a"}]},
        ("history_messages", 0),
        "must be a message with a role",
    ),
    "alpaca with messages": (
        {**ALPACA, "history_messages": [{"role": "user"}]},
        ("history_messages",),
        "has only one turn",
    ),
    "alpaca without a slot": ({**ALPACA, "instruction": "x"}, ("class",), "write a slot"),
    "alpaca with two slots": ({**ALPACA, "instruction": "{a} {b}"}, ("class",), "set input_slot"),
    "empty with an instruction": ({**EMPTY, "instruction": "x"}, ("instruction",), "user message unchanged"),
    "tools without tokens": (
        {"kind": "prompter", "class": "chat", "tools": {"parser": "lazyllm"}},
        ("tools",),
        "needs the marks tool_start_token",
    ),
    "another way to write tools": (
        {**CHAT, "tools": {"parser": "lazyllm", "calls": {}}},
        ("tools", "calls"),
        "writes tools in its own way",
    ),
    "a tool without a name": (
        {**TOOLS, "default_tools": [{"type": "function"}]},
        ("default_tools",),
        "default_tools[0].function.name is missing",
    ),
    "tools for the class empty": ({**EMPTY, "default_tools": [TOOL]}, ("default_tools",), "has no effect"),
    "an answer after a mark that is missing": (
        {**CHAT, "dialect": "0.1", "marks_of": "chatglm3", "marks": {"soa": ""}, "get_response": True},
        ("get_response",),
        "needs the mark soa",
    ),
    "an unknown dialect": ({**CHAT, "dialect": "2"}, ("dialect",), "must be one of 1.4, 0.1.2, 0.1"),
    "parts before their time": (
        {"kind": "prompter", "class": "chat", "dialect": "0.1", "instruction": {"user": "x"}},
        ("instruction",),
        "write one text",
    ),
    "a BOS that is not there": ({**CHAT, "bos": "text", "bos_text": "<s>"}, ("bos_text",), "the start of `sos`"),
    "a BOS without a text": ({**CHAT, "bos": "text"}, ("bos",), "needs bos_text"),
    "a text without a BOS": ({**CHAT, "bos_text": "<s>"}, ("bos_text",), "applies only to bos: text"),
    "exact": ({**CHAT, "exact": True}, ("exact",), "was removed: slots are found in the template alone"),
    "an example without variables": (
        {**RAG, "examples": [{"messages": [{"role": "user", "content": "q"}], "variables": [], "prompt": "x"}]},
        ("examples", 0, "variables"),
        "must be a mapping",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_file_is_reported_with_its_place(name: str) -> None:
    raw, path, part = MISTAKES[name]
    with pytest.raises(SpecError) as caught:
        build(parse_spec(raw, name="sample"))
    told = {problem.path: problem.message for problem in caught.value.problems}
    assert part in told[path]


@pytest.mark.parametrize("name", ["internlm2-chat-7b", "org/InternLM2_5-20B", "internlm2"])
def test_the_tokens_are_found_by_a_models_name(name: str) -> None:
    assert (
        template({**CHAT, "marks_of": name}).spec.prompter == template({**CHAT, "marks_of": "internlm2"}).spec.prompter
    )


@pytest.mark.parametrize("name", ["gpt-4o", "qwen2.5-vl-3b-instruct", "llama-3-8b", "models/qwen2-7b/"])
def test_a_name_without_tokens_is_refused(name: str) -> None:
    with pytest.raises(
        SpecError, match="neither a family of LazyLLM's table nor a model for which LazyLLM finds a family"
    ):
        template({**CHAT, "marks_of": name})


def test_an_old_dialect_finds_whole_names_only() -> None:
    old = {**OLD, "marks_of": "internlm2-chat-7b"}
    assert rendered(old, (U, "q")).text.startswith("<|im_start|>system\n")
    with pytest.raises(SpecError, match="marks_of"):
        template({**OLD, "marks_of": "internlm2-chat-7b-mine"})


OWN_TOOLS: dict[str, Any] = {**TOOLS, "default_tools": [TOOL]}


def test_the_templates_tools_are_written_as_if_the_request_had_them() -> None:
    own = rendered(OWN_TOOLS, (U, "q")).text
    assert own == rendered(TOOLS, (U, "q"), tools=(TOOL,)).text
    other = {"type": "function", "function": {"name": "g"}}
    assert rendered(OWN_TOOLS, (U, "q"), tools=(other,)).text == rendered(TOOLS, (U, "q"), tools=(other,)).text
    assert rendered(OWN_TOOLS, (U, "q"), tool_choice="none").text == rendered(TOOLS, (U, "q")).text


def test_an_old_dialect_takes_tools_from_one_source_only() -> None:
    marks = {"tool_start_token": "<s>", "tool_args_token": "<a>", "tool_end_token": "<e>"}
    raw = {**OLD, "marks": marks, "tools": {"parser": "lazyllm"}, "default_tools": [TOOL]}
    assert (
        '### Function-call Tools. \n\n[{"type": "function", "function": {"name": "f"}}]' in rendered(raw, (U, "q")).text
    )
    error = refused(raw, dialogue((U, "q"), tools=(TOOL,)))
    assert (error.param, "has default tools" in error.message) == ("tools", True)


OLD: dict[str, Any] = {"kind": "prompter", "class": "chat", "dialect": "0.1"}


@pytest.mark.parametrize("dialect", ["0.1", "0.1.2"])
def test_an_old_dialect_writes_earlier_turns_as_the_documentation_prints_pairs(dialect: str) -> None:
    raw = {**OLD, "dialect": dialect, "instruction": "你是一个对话机器人,现在你要和用户进行友好的对话"}
    turns = [(U, "你好"), (A, "你好,我是一个对话机器人,有什么能为您服务的"), (U, "我们聊会儿天吧")]
    assert rendered(raw, *turns).text == (
        "<|start_system|>You are an AI-Agent developed by LazyLLM.你是一个对话机器人,现在你要和用户进行友好的对话\n\n"
        "<|end_system|>\n\n<|Human|>:你好<|Assistant|>:你好,我是一个对话机器人,有什么能为您服务的\n"
        "<|Human|>:\n我们聊会儿天吧\n<|Assistant|>:\n"
    )


@pytest.mark.parametrize(
    "turns", [[(U, "a"), (U, "b")], [(A, "a"), (U, "b")], [(U, "a"), (U, "b"), (A, "c"), (U, "d")]]
)
def test_an_old_dialect_takes_no_other_earlier_turns(turns: list[tuple[str, str]]) -> None:
    error = refused(OLD, dialogue(*turns))
    assert "NotImplementedError: earlier turns must be pairs of user and assistant" in error.message


def test_the_example_of_the_page_is_a_good_template(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "prompters.md").read_text("utf-8")
    file = tmp_path / "my-rag.yaml"
    file.write_text(page.split("```yaml\n", 1)[1].split("```", 1)[0], encoding="utf-8")
    asked = page.split("echo '", 1)[1].split("' |", 1)[0]
    command = [sys.executable, "-m", "gateway", "render", "--template", str(file)]
    done = subprocess.run(command, input=asked.encode(), capture_output=True, check=False, cwd=ROOT)
    assert done.stderr == b""
    assert b"The tower is 12 m high.\n\n<|im_end|>" in done.stdout


@pytest.mark.parametrize(
    "raw", [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}]
)
def test_calls_without_a_content_are_calls(raw: dict[str, Any]) -> None:
    """The message has two keys, as plain ones do."""
    said = Dialogue((message(U, "q"), Message("assistant", "", raw=raw), message(U, "r")))
    assert "<|function|>\nf<|args|>{}" in template(TOOLS).render(said).text
    for other in (CHAT, PLAIN, {**PLAIN, "turns": "opencompass"}):
        assert refused(other, said).param == "messages[1].tool_calls"


LONG = "0," * 20_000
RESULTS = {  # name: (a tool's result, how it is printed, the notice)
    "a long list": (f"[{LONG}0]", "[" + "0, " * 20_000 + "0]", ["tool_result_printed"]),
    "blanks around JSON": ("\u00a0[0]\n", "[0]", ["tool_result_printed"]),
    "JSON5 that is not JSON": ("{a: [0,]}", "{a: [0,]}", []),
    "a separator that JSON5 refuses in strings": ('"a\u2028"', '"a\u2028"', []),
    "a half of a pair": ('"\\ud83d"', '"\\ud83d"', []),
    "a half of a pair in a list": ('["\\ud83d"]', "['\\ud83d']", ["tool_result_printed"]),
    "a long text": ("said " * 20_000, "said " * 20_000, []),
    "a number with too many digits": ("0x" + "f" * 4000, "0x" + "f" * 4000, []),
    "brackets all the way down": ("[" * 5000, "[" * 5000, []),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_printed_while_that_is_no_work(name: str) -> None:
    result, printed, notices = RESULTS[name]
    said = (message(U, "q"), message(T, result, tool_call_id="1"), message(U, "r"))
    began = time.process_time()
    prompt = template(TOOLS).render(Dialogue(said))
    assert f"environment\n{printed}<|im_end|>" in prompt.text
    assert [notice.rule for notice in prompt.metadata.notices] == notices
    assert time.process_time() - began < 4  # 10 s it was, for a list of JSON that fits into a request


def test_tools_are_shared_by_conversations_of_all_lengths() -> None:
    """One copy of a long list, however many lengths are laid out with it."""
    made = template(TOOLS)
    tools = ({"type": "function", "function": {"name": "f", "description": "x" * 50_000}},)
    tracemalloc.start()
    for length in range(1, 65):
        turns = [message((U, A)[number % 2], "a") for number in range(2 * length - 1)]
        assert made.render(Dialogue(tuple(turns), RenderOptions(tools=tools))).text.count("x" * 50_000) == 1
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2_000_000  # 3.2 MB of tools alone, if each length had its own
