"""Complete conversations: every turn ends, and no answer is opened (``RenderOptions.whole``)."""

from __future__ import annotations

from typing import Any

import pytest

from metatemplate.errors import InvalidInput
from metatemplate.templates.base import Template
from metatemplate.values.dialogue import Dialogue, RenderOptions, plain_messages
from tests.metatemplate.templates.samples import API, PLAIN, RESERVED, THINKING, dialogue, message, template

TURNS = (("user", "1+1=?"), ("assistant", "2"), ("user", "2+2=?"), ("assistant", "4"))
CHATML = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
PROMPTER: dict[str, Any] = {
    "kind": "prompter",
    "class": "chat",
    "marks": {"soh": "[Q]", "eoh": "[/Q]", "soa": "[A]", "eoa": "[/A]"},
}
TOOLS: dict[str, Any] = {
    **RESERVED,
    "roles": {"tool": "HUMAN"},
    "tools": {"parser": "hermes", "declare": {"begin": "TOOLS ", "end": "\n"}, "calls": {"begin": "CALL "}},
}

WHOLE: dict[str, tuple[dict[str, Any], str]] = {
    "meta": ({**PLAIN, "end": "END"}, "<HUMAN>: 1+1=?<eoh>\n<BOT>: 2<eob>\n<HUMAN>: 2+2=?<eoh>\n<BOT>: 4<eob>\nEND"),
    "meta with tools": (TOOLS, "<HUMAN>: 1+1=?<eoh>\n<BOT>: 2<eob>\n<HUMAN>: 2+2=?<eoh>\n<BOT>: 4<eob>\n"),
    "meta as OpenCompass": (
        {**PLAIN, "turns": "opencompass", "end": "END"},
        "<HUMAN>: 1+1=?<eoh>\n<BOT>: 2<eob>\n<HUMAN>: 2+2=?<eoh>\n<BOT>: 4<eob>\nEND",
    ),
    "chat template": (
        {"kind": "jinja", "template": CHATML},
        "<user>1+1=?</s><assistant>2</s><user>2+2=?</s><assistant>4</s>",
    ),
    "prompter": (
        PROMPTER,
        "You are an AI-Agent developed by LazyLLM.\n\n[Q]1+1=?[/Q][A]2[/A]\n[Q]\n2+2=?\n[/Q][A]\n4[/A]",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_the_last_answer_ends_and_no_answer_is_opened(name: str) -> None:
    raw, text = WHOLE[name]
    prompt = template(raw).render(dialogue(*TURNS, whole=True))
    assert prompt.text == text
    assert "".join(segment.text for segment in prompt.segments or ()) == prompt.text


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "prompter"])
def test_the_prompt_of_the_last_answer_is_the_start_of_the_whole_conversation(name: str) -> None:
    rendered: Template = template(WHOLE[name][0])
    asked = rendered.render(dialogue(*TURNS[:-1])).text
    assert rendered.render(dialogue(*TURNS, whole=True)).text.startswith(asked + "4")


@pytest.mark.parametrize("raw", [PLAIN, RESERVED, THINKING], ids=["plain", "reserved", "default prompt"])
def test_alternating_turns_are_those_of_opencompass_in_mode_ppl(raw: dict[str, Any]) -> None:
    whole = dialogue(*TURNS, whole=True)
    natural, opencompass = (template(raw, turns=turns, end="END") for turns in ("natural", "opencompass"))
    assert natural.render(whole).text == opencompass.render(whole).text


def test_a_template_with_tools_writes_tools_and_calls_of_a_whole_conversation() -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = (message("user", "1+1=?"), message("assistant", "", tool_calls=[call]))
    text = template(TOOLS).render(Dialogue(messages, RenderOptions(tools=(tool,), whole=True))).text
    assert "TOOLS " in text
    assert text.endswith('<BOT>: CALL {"name": "add", "arguments": {"a": 1}}<eob>\n')


def test_a_target_that_renders_itself_gets_all_messages() -> None:
    raws = [{"role": role, "content": text} for role, text in TURNS]
    for raw in (API, {"kind": "chat"}):
        assert list(template(raw).render(dialogue(*TURNS, whole=True)).messages or ()) == raws


REFUSED: dict[str, tuple[dict[str, Any], Dialogue, str]] = {
    "a prompter without an answer": (PROMPTER, dialogue(*TURNS[:-1], whole=True), "add_generation_prompt"),
    "a forced call after the end": (
        TOOLS,
        Dialogue(
            plain_messages([{"role": "user", "content": "hi"}]) or (),
            RenderOptions(whole=True, tools=({"type": "function", "function": {"name": "f"}},), tool_choice="required"),
        ),
        "tool_choice",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_conversation_that_cannot_be_whole_is_refused(name: str) -> None:
    raw, asked, param = REFUSED[name]
    with pytest.raises(InvalidInput) as raised:
        template(raw).render(asked)
    assert raised.value.param == param
