"""Tools, calls and results in the prompt, in the form and at the place that the file declares; refusals by field."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import as_gateway_error
from metatemplate.answers.tool_calls.registry import FORMATS
from metatemplate.errors import InputError
from metatemplate.files.template import SpecError, parse_spec
from metatemplate.files.yaml import parse
from metatemplate.templates.registry import build, run_examples
from metatemplate.templates.spec import CallForm, ToolList, ToolsSpec
from metatemplate.templates.tools import calls_of, choice_of, tools_of
from metatemplate.values.answer_markers import Thinking
from metatemplate.values.dialogue import Dialogue, RenderOptions
from metatemplate.values.prompt import Prompt
from tests.metatemplate.templates.samples import BOT, HUMAN, SYSTEM, THOUGHTS, message, template

ADD = {"type": "function", "function": {"name": "add", "description": "é", "parameters": {"type": "object"}}}
NOW = {"type": "function", "function": {"name": "now"}}
ADD_TEXT = '{"type": "function", "function": {"name": "add", "description": "é", "parameters": {"type": "object"}}}'
NOW_TEXT = '{"type": "function", "function": {"name": "now"}}'

BASE: dict[str, Any] = {"begin": "^", "round": [HUMAN, BOT], "reserved_roles": [SYSTEM], "roles": {"tool": "HUMAN"}}
LIST = {"begin": "[", "separator": ",", "end": "]", "between": " + "}
TOOLS: dict[str, Any] = {
    "parser": "hermes",
    "declare": LIST,
    "calls": {"after_text": " & ", "begin": "(", "each_begin": "<", "each_end": ">", "separator": "|", "end": ")"},
    "results": {"begin": "{", "end": "}", "together": True, "separator": "~"},
    "force": {"begin": '<{"name": "', "end": '", "arguments": '},
}

USER, SAID, ASKED = message("user", "hi"), message("assistant", "yes"), message("system", "Be brief.")


def spoken(arguments: str = "{}", content: str | None = None, name: str = "now", number: int = 1) -> Any:
    call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
    return message("assistant", content, tool_calls=[call] * number)


def result(text: str) -> Any:
    return message("tool", text, tool_call_id="c1")


def declared(**changes: Any) -> dict[str, Any]:
    return {**TOOLS, "declare": {**LIST, **changes}}


def rendered(form: dict[str, Any], *messages: Any, **settings: Any) -> Prompt:
    prompt = template(BASE, tools=form).render(Dialogue(messages, RenderOptions(**settings)))
    assert prompt.segments is not None
    assert "".join(segment.text for segment in prompt.segments) == prompt.text
    return prompt


LISTED = f"[{ADD_TEXT},{NOW_TEXT}]"
PLACES: dict[str, tuple[dict[str, Any], tuple[Any, ...], str]] = {  # name: (declare, messages, prompt)
    "behind the system text": (
        {},
        (ASKED, USER),
        f"^<SYSTEM>: Be brief. + {LISTED}<eosys>\n<HUMAN>: hi<eoh>\n<BOT>: ",
    ),
    "before the system text": (
        {"place": "before_text"},
        (ASKED, USER),
        f"^<SYSTEM>: {LISTED} + Be brief.<eosys>\n<HUMAN>: hi<eoh>\n<BOT>: ",
    ),
    "no system message": ({}, (USER,), f"^<SYSTEM>: {LISTED}<eosys>\n<HUMAN>: hi<eoh>\n<BOT>: "),
    "no system message, but a text": (
        {"system": "Help."},
        (USER,),
        f"^<SYSTEM>: Help. + {LISTED}<eosys>\n<HUMAN>: hi<eoh>\n<BOT>: ",
    ),
    "a system message further on": (
        {},
        (USER, ASKED),
        f"^<SYSTEM>: {LISTED}<eosys>\n<HUMAN>: hi<eoh>\n<SYSTEM>: Be brief.<eosys>\n<BOT>: ",
    ),
    "before the system turn": (
        {"place": "before_turn"},
        (ASKED, USER),
        f"^{LISTED}<SYSTEM>: Be brief.<eosys>\n<HUMAN>: hi<eoh>\n<BOT>: ",
    ),
    "beside no system turn": ({"place": "before_turn"}, (USER,), f"^{LISTED}<HUMAN>: hi<eoh>\n<BOT>: "),
    "before the first user's text": (
        {"turn": "first_user", "place": "before_text"},
        (ASKED, USER, SAID, USER),
        f"^<SYSTEM>: Be brief.<eosys>\n<HUMAN>: {LISTED} + hi<eoh>\n<BOT>: yes<eob>\n<HUMAN>: hi<eoh>\n<BOT>: ",
    ),
    "before the last user's turn": (
        {"turn": "last_user", "place": "before_turn"},
        (USER, SAID, USER),
        f"^<HUMAN>: hi<eoh>\n<BOT>: yes<eob>\n{LISTED}<HUMAN>: hi<eoh>\n<BOT>: ",
    ),
    "behind the last user's turn": (
        {"turn": "last_user", "place": "after_turn"},
        (USER,),
        f"^<HUMAN>: hi<eoh>\n{LISTED}<BOT>: ",
    ),
    "functions, indented": (
        {"each": "function", "indent": 1},
        (ASKED, USER),
        '^<SYSTEM>: Be brief. + [{\n "name": "add",\n "description": "é",\n "parameters": {\n  "type": "object"\n }\n},'
        '{\n "name": "now"\n}]<eosys>\n<HUMAN>: hi<eoh>\n<BOT>: ',
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_the_list_stands_where_the_file_says(name: str) -> None:
    changes, messages, expected = PLACES[name]
    assert rendered(declared(**changes), *messages, tools=(ADD, NOW)).text == expected


TURNS: dict[str, tuple[dict[str, Any], tuple[Any, ...], str]] = {  # name: (calls and results, messages, prompt)
    "a call without text": ({}, (USER, spoken()), '<BOT>: (<{"name": "now", "arguments": {}}>)<eob>\n'),
    "a call behind text": (
        {},
        (USER, spoken('{"é":[1.5,null]}', "So.")),
        '<BOT>: So. & (<{"name": "now", "arguments": {"é": [1.5, null]}}>)<eob>\n',
    ),
    "two calls": (
        {},
        (USER, spoken(number=2)),
        '<BOT>: (<{"name": "now", "arguments": {}}>|<{"name": "now", "arguments": {}}>)<eob>\n',
    ),
    "parameters": (
        {"calls": {"key": "parameters"}},
        (USER, spoken('{"a":1}')),
        '<BOT>: {"name": "now", "parameters": {"a": 1}}<eob>\n',
    ),
    "a name and arguments": (
        {"calls": {"body": "named", "between": "@"}},
        (USER, spoken('{"a":1}')),
        '<BOT>: now@{"a": 1}<eob>\n',
    ),
    "Python": (
        {"calls": {"body": "python"}},
        (USER, spoken('{"a":1,"b":"x\'","c":true}')),
        '<BOT>: now(a=1, b="x\'", c=True)<eob>\n',
    ),
    "results together": (
        {},
        (spoken(), result("1"), result("2")),
        '<BOT>: (<{"name": "now", "arguments": {}}>)<eob>\n<HUMAN>: {1}~{2}<eoh>\n',
    ),
    "results apart": (
        {"results": {}},
        (spoken(), result("1"), result("2"), USER),
        '<BOT>: (<{"name": "now", "arguments": {}}>)<eob>\n<HUMAN>: 1<eoh>\n<HUMAN>: 2<eoh>\n<HUMAN>: hi<eoh>\n',
    ),
}


@pytest.mark.parametrize("name", TURNS)
def test_calls_and_results_are_written_as_the_file_says(name: str) -> None:
    changes, messages, expected = TURNS[name]
    for settings in ({}, {"tools": (NOW,), "tool_choice": "none"}):
        text = rendered({**TOOLS, **changes}, *messages, **settings).text
        assert text.endswith("<BOT>: ")
        assert text.removesuffix("<BOT>: ").endswith(expected)


def test_client_text_is_content_and_the_rest_is_scaffold() -> None:
    prompt = rendered(TOOLS, ASKED, USER, spoken(content="So."), result("12:00"), tools=(NOW,))
    assert prompt.segments is not None
    content = [(segment.text, segment.origin) for segment in prompt.segments if not segment.scaffold]
    assert content == [
        ("Be brief.", "messages[0]"),
        (NOW_TEXT, "tools[0]"),
        ("hi", "messages[1]"),
        ("So.", "messages[2]"),
        ('{"name": "now", "arguments": {}}', "messages[2]"),
        ("12:00", "messages[3]"),
    ]
    assert [str(notice) for notice in prompt.metadata.notices] == ["ignored_field: messages[3].tool_call_id"]


NAMED = {"type": "function", "function": {"name": "now"}}
OPENED = {  # tool_choice: what the prompt ends with on the model's behalf
    "auto": ("auto", ""),
    "required": ("required", '<{"name": "'),
    "named": (NAMED, '<{"name": "now", "arguments": '),
}


@pytest.mark.parametrize("name", OPENED)
def test_a_demanded_call_is_begun_in_the_prompt(name: str) -> None:
    choice, opened = OPENED[name]
    prompt = rendered(TOOLS, USER, tools=(NOW,), tool_choice=choice)
    assert prompt.metadata.opened == opened
    assert prompt.text.endswith(f"<BOT>: {opened}")


def test_without_tools_the_prompt_is_that_of_a_template_without_tools() -> None:
    plain = template(BASE)
    for messages in ((USER,), (ASKED, USER, SAID, USER)):
        assert rendered(TOOLS, *messages) == plain.render(Dialogue(messages))
        assert rendered(TOOLS, *messages, tools=(NOW,), tool_choice="none") == plain.render(Dialogue(messages))
    goes_on = Dialogue((USER, SAID), RenderOptions(continue_final=True))
    assert template(BASE, tools=TOOLS).render(goes_on) == plain.render(goes_on)


def test_a_message_goes_on_beside_tools() -> None:
    prompt = rendered(TOOLS, USER, SAID, tools=(NOW,), continue_final=True)
    assert prompt.text == f"^<SYSTEM>: [{NOW_TEXT}]<eosys>\n<HUMAN>: hi<eoh>\n<BOT>: yes"


def test_own_words_of_a_round_stay_in_their_place() -> None:
    tools = {**TOOLS, "results": {"begin": "{", "end": "}"}}
    prompt = template(BASE, round=[HUMAN, THOUGHTS, BOT], tools=tools).render(Dialogue((USER, spoken(), result("1"))))
    assert prompt.text == (
        '^<HUMAN>: hi<eoh>\nTHOUGHTS: None<eot>\n<BOT>: (<{"name": "now", "arguments": {}}>)<eob>\n'
        "<HUMAN>: {1}<eoh>\nTHOUGHTS: None<eot>\n<BOT>: "
    )


BAD_CALL = "messages[1].tool_calls[0].function.arguments"
WRONG: dict[str, tuple[dict[str, Any], tuple[Any, ...], dict[str, Any], str, str]] = {
    # name: (changes of tools, messages, settings, code, param)
    "an unknown choice": ({}, (USER,), {"tools": (NOW,), "tool_choice": "any"}, "invalid_value", "tool_choice"),
    "a tool that is not there": ({}, (USER,), {"tools": (ADD,), "tool_choice": NAMED}, "invalid_value", "tool_choice"),
    "a demand without tools": ({}, (USER,), {"tool_choice": "required"}, "invalid_value", "tool_choice"),
    "a demand that cannot be made": (
        {"force": None}, (USER,), {"tools": (NOW,), "tool_choice": "required"}, "unsupported_parameter", "tool_choice",
    ),
    "a demand in an open turn": (
        {}, (USER, SAID), {"tools": (NOW,), "tool_choice": "required", "continue_final": True}, "invalid_value",
        "tool_choice",
    ),
    "a tool without a name": (
        {}, (USER,), {"tools": ({"type": "function"},)}, "invalid_value", "tools[0].function.name",
    ),
    "a tool of another kind": ({}, (USER,), {"tools": ({"type": "custom"},)}, "unsupported_parameter", "tools[0].type"),
    "a tool twice": ({}, (USER,), {"tools": (NOW, NOW)}, "invalid_value", "tools[1].function.name"),
    "arguments that are no JSON": ({}, (USER, spoken("{")), {}, "invalid_value", BAD_CALL),
    "arguments that are a list": ({}, (USER, spoken("[]")), {}, "invalid_value", BAD_CALL),
    "arguments with NaN": ({}, (USER, spoken('{"a": NaN}')), {}, "invalid_value", BAD_CALL),
    "arguments with half a character": ({}, (USER, spoken('{"a": "\\ud800"}')), {}, "invalid_value", BAD_CALL),
    "arguments beyond a float": ({}, (USER, spoken('{"a": 1e999}')), {}, "invalid_value", BAD_CALL),
    "calls that cannot be written": (
        {"calls": None}, (USER, spoken()), {}, "unsupported_parameter", "messages[1].tool_calls",
    ),
    "a user who calls": (
        {}, (message("user", "x", tool_calls=[{"function": {"name": "now"}}]),), {}, "invalid_value",
        "messages[0].tool_calls",
    ),
    "the old form of calls": (
        {}, (USER, message("assistant", "", function_call={"name": "now"})), {"tools": (NOW,)},
        "unsupported_parameter", "messages[1].function_call",
    ),
    "a call that goes on": (
        {}, (USER, spoken()), {"continue_final": True}, "invalid_value", "continue_final_message",
    ),
    "no user to tell the tools": (
        {"declare": {"turn": "last_user"}}, (ASKED,), {"tools": (NOW,)}, "invalid_value", "messages",
    ),
    "a keyword in Python": (
        {"calls": {"body": "python"}}, (USER, spoken('{"class": 1}')), {}, "invalid_value", "messages[1].tool_calls",
    ),
    "a function that Python cannot name": (
        {"calls": {"body": "python"}}, (USER, spoken(name="get-it")), {}, "invalid_value", "messages[1].tool_calls",
    ),
    "a call of a name that no tool may have": (
        {}, (USER, spoken(name="now\n")), {}, "invalid_value", "messages[1].tool_calls[0].function.name",
    ),
    "a name that is none in Python": (
        {"calls": {"body": "python"}}, (USER, spoken('{"a-b": 1}')), {}, "invalid_value", "messages[1].tool_calls",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_written_is_refused_by_its_place(name: str) -> None:
    changes, messages, settings, code, param = WRONG[name]
    tools = {key: value for key, value in {**TOOLS, **changes}.items() if value is not None}
    with pytest.raises(InputError) as raised:
        template(BASE, tools=tools).render(Dialogue(messages, RenderOptions(**settings)))
    assert (as_gateway_error(raised.value).code, raised.value.param) == (code, param)


def test_a_template_without_tools_refuses_them() -> None:
    with pytest.raises(InputError) as raised:
        template(BASE).render(Dialogue((USER,), RenderOptions(tools=(NOW,))))
    assert (as_gateway_error(raised.value).code, raised.value.param) == ("unsupported_parameter", "tools")


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {  # name: (changes of the file, a problem)
    "no parser": ({"tools": {"declare": {}}}, "tools.parser: is missing"),
    "an unknown parser": ({"tools": {"parser": "hermit", "declare": {}}}, 'did you mean "hermes"?'),
    "no list": ({"tools": {"parser": "json"}}, "tools: has no `declare`"),
    "an unknown key": ({"tools": {**TOOLS, "call": {}}}, "tools.call: unknown key"),
    "no system role": ({"tools": TOOLS, "reserved_roles": []}, "system needs a role SYSTEM"),
    "no role for results": ({"tools": TOOLS, "roles": {}}, "no role writes the results"),
    "turns of the reference": ({"tools": TOOLS, "turns": "opencompass"}, "turns: opencompass does not support tools"),
    "half the tokens": ({"tools": {**TOOLS, "parser": "lazyllm", "tokens": {"start": "a"}}}, "add the missing key"),
    "half a demand": ({"tools": {**TOOLS, "force": {"begin": "<"}}}, "tools.force.end: is missing"),
    "a demand inside the reasoning": (
        {"tools": TOOLS, "thinking": {"begin": "<think>", "end": "</think>", "open": True}},
        "because the prompt opens the reasoning",
    ),
    "a forced call with an unknown position": (
        {"tools": TOOLS, "thinking": {"begin": "<think>", "end": "</think>", "open": "auto"}},
        "needs thinking.open: true or false",
    ),
    "a thinking that is neither": ({"thinking": {"begin": "a", "end": "b", "open": "yes"}}, "must be true or false"),
    "results together among own words": ({"tools": TOOLS, "round": [HUMAN, THOUGHTS, BOT]}, "its own texts"),
    "an indent that is none": ({"tools": declared(indent=-1)}, "a whole number"),
    "thinking without an end": ({"thinking": {"begin": "<think>"}}, "thinking.end: is missing"),
    "thinking in no field": ({"thinking": {"begin": "a", "end": "b", "fields": []}}, "thinking.fields: is empty"),
    "thinking in another field": ({"thinking": {"begin": "a", "end": "b", "fields": ["x"]}}, "must be one of"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_file_is_reported(name: str) -> None:
    changes, problem = MISTAKES[name]
    with pytest.raises(SpecError) as raised:
        parse_spec({**BASE, **changes}, name="sample")
    assert any(problem in f"{'.'.join(map(str, found.path))}: {found.message}" for found in raised.value.problems)


@pytest.mark.parametrize("raw", [{"kind": "chat"}, {"round": [{"role": "HUMAN", "api_role": "HUMAN"}]}])
def test_a_template_that_makes_messages_declares_neither(raw: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as raised:
        parse_spec({**raw, "tools": TOOLS, "thinking": {"begin": "a", "end": "b"}}, name="sample")
    told = {found.path for found in raised.value.problems if "this template makes messages" in found.message}
    assert told == {("tools",), ("thinking",)}


def test_an_unknown_format_is_refused_with_a_suggestion() -> None:
    with pytest.raises(SpecError) as raised:
        parse_spec({**BASE, "tools": {**TOOLS, "parser": "qwen3coder"}}, name="sample")
    (problem,) = raised.value.problems
    assert problem.path == ("tools", "parser")
    assert problem.message.endswith('not "qwen3coder" (did you mean "qwen3_coder"?)')


ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")


def test_the_template_on_the_page_is_good_and_its_example_holds() -> None:
    (text,) = re.findall(r"^```yaml\n# meta_templates/\S+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    spec = parse_spec(parse(text.encode(), "page").value, name="page")
    assert spec.examples
    assert run_examples(build(spec)) == []


def test_the_page_explains_every_key() -> None:
    explained = set(re.findall(r"`([a-z0-9_.]+)`", "\n".join(re.findall(r"^\| (.+?) \|", PAGE, re.MULTILINE))))
    explained |= set(re.findall(r"`([a-z_]+)`", "".join(re.findall(r"^\| `results` .*$", PAGE, re.MULTILINE))))
    parts = {"declare.": ToolList, "calls.": CallForm, "": ToolsSpec}
    for prefix, part in parts.items():
        assert {f"{prefix}{field.name}" for field in fields(part)} <= explained, part
    assert {field.name for field in fields(Thinking)} <= explained
    assert set(FORMATS) <= explained


def test_calls_come_parsed_to_whoever_writes_them() -> None:
    call = calls_of(spoken('{"a": 1}'), 0)[0]
    assert (call.name, call.arguments) == ("now", {"a": 1})
    assert choice_of(Dialogue((USER,), RenderOptions(tools=(NOW,), tool_choice=NAMED))).name == "now"
    assert tools_of(Dialogue((USER,), RenderOptions(tools=(NOW,)))) == (NOW,)
