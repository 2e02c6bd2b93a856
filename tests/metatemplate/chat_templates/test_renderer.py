# ruff: noqa: E501 - rows of cases
"""A chat template gets its variables from the file and from the request; notices and segments describe the prompt."""

from __future__ import annotations

from typing import Any

import pytest

from metatemplate.errors import (
    ForbiddenInput,
    InvalidInput,
    MetaTemplateError,
    TemplateFailure,
    UnsupportedInput,
    UnsupportedMedia,
)
from tests.metatemplate.chat_templates.samples import CHATML, HELLO, dialogue, jinja

SAID = "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
TOOL = {"type": "function", "function": {"name": "f"}}


def said(source: str, body: dict[str, Any] | None = None, **keys: Any) -> str:
    return jinja(source, **keys).render(dialogue(body or HELLO)).text


# name: (template, keys of the file, fields of the request, text)
VARIABLES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "a special token": ("{{ bos_token }}", {"special_tokens": {"bos_token": "<s>"}}, {}, "<s>"),
    "a fixed variable": ("{{ x }}", {"kwargs": {"x": "y"}}, {}, "y"),
    "a variable of the request": (
        "{{ x }}",
        {"request_kwargs": ["x"]},
        {"chat_template_kwargs": {"x": [1, "a"]}},
        "[1, 'a']",
    ),
    "the request wins": (
        "{{ x }}",
        {"kwargs": {"x": "y"}, "request_kwargs": ["x"]},
        {"chat_template_kwargs": {"x": False}},
        "False",
    ),
    "the frozen clock": ("{{ strftime_now('%d %b %Y') }}", {}, {}, "26 Jul 2024"),
    "a clock of its own": (
        "{{ strftime_now('%Y-%m-%d %H:%M') }}",
        {"clock": "2031-05-01T07:30"},
        {},
        "2031-05-01 07:30",
    ),
    "no tools": ("{{ tools }}|{{ documents }}", {}, {}, "None|None"),
    "tools": (
        "{{ tools | tojson }}",
        {"tools": {"parser": "json"}},
        {"tools": [TOOL]},
        '[{"type": "function", "function": {"name": "f"}}]',
    ),
    "blocks are trimmed": ("{% if true %}\n  a\n  {% endif %}\nb", {}, {}, "  a\nb"),
    "json without escapes": ("{{ {'a': '<é&>'} | tojson }}", {}, {}, '{"a": "<é&>"}'),
    "a last line break": ("a\n", {}, {}, "a"),
    "an undefined attribute": ("[{{ messages[0].nope }}]", {}, {}, "[]"),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_a_template_gets(name: str) -> None:
    source, keys, fields, text = VARIABLES[name]
    assert said(source, {**HELLO, **fields}, **keys) == text


MESSAGES = {  # name: (messages, keys of the file, text of SAID)
    "parts are joined": (
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        {},
        "user=ab;",
    ),
    "parts as they are": (
        [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
        {"content": "parts"},
        "user=[{'type': 'text', 'text': 'a'}];",
    ),
    "null is absent": ([{"role": "assistant", "content": None, "name": "n"}], {}, "assistant=;"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_get_to_the_template(name: str) -> None:
    messages, keys, text = MESSAGES[name]
    assert said(SAID, {"messages": messages}, **keys) == text


def test_calls_of_a_message_without_a_content_get_to_the_template() -> None:
    body = {"messages": [*HELLO["messages"], {"role": "assistant", "tool_calls": [CALL]}]}
    assert said("{{ messages[-1].tool_calls[0].function.name }}{{ messages[-1].content is defined }}", body) == "fFalse"


NO_CONTENT = {  # name: (how the template writes a content beside calls, text, notices)
    "any form": ("{{ m.content }}", "", ["undefined_variable: content"]),
    "only a key that is left out": ("{% if m.content is defined %}{{ m.content | length }}{% endif %}", "", []),
    "a test for null, and the key": ("{{ 'null' if m['content'] is none else m['content'] + '!' }}", "null", []),
    "a test of a variable": (
        "{% set content = m.content %}{{ 'null' if content is none else content + '!' }}",
        "null",
        [],
    ),
    "a test for null that does not need the key": ("{{ 'null' if m.content is none else 'text' }}", "text", []),
    "the length of a text": ("{{ m.content | string | length if m.content is none else m.content + '!' }}", "4", []),
    "only a text": ("{{ m['content'] + '!' }}", "!", ['filled_content: messages[1].content=""']),
    "a text that is not null": ("{{ m.content.strip() + '!' }}", "!", ['filled_content: messages[1].content=""']),
    "what it refuses": (
        "{% if m.content is not string %}{{ raise_exception('no text') }}{% endif %}{{ m.content }}!",
        "!",
        ['filled_content: messages[1].content=""'],
    ),
}
CALLS = "{% for m in messages %}{% if m.tool_calls %}TEXT{{ m.tool_calls | length }}{% endif %}{% endfor %}"
IN_A_SUBPROCESS = "{{ 2 ** 3 }}"  # an operation that is never rendered in the gateway's process


def called(**content: Any) -> list[dict[str, Any]]:
    answer = {"role": "tool", "tool_call_id": "c1", "content": "1"}
    return [*HELLO["messages"], {"role": "assistant", **content, "tool_calls": [CALL]}, answer]


def filled(source: str, messages: list[dict[str, Any]]) -> tuple[str, list[str]]:
    prompt = jinja(source).render(dialogue({"messages": messages}))
    notices = [str(notice) for notice in prompt.metadata.notices]
    return prompt.text, [notice for notice in notices if notice.startswith(("filled", "undefined"))]


@pytest.mark.parametrize("place", ["", IN_A_SUBPROCESS], ids=["in this process", "in a subprocess"])
@pytest.mark.parametrize("content", [{"content": None}, {}], ids=["null", "absent"])
@pytest.mark.parametrize(("written", "text", "notices"), NO_CONTENT.values(), ids=NO_CONTENT)
def test_a_call_without_content_has_the_first_form_that_renders(
    written: str, text: str, notices: list[str], content: dict[str, Any], place: str
) -> None:
    source = CALLS.replace("TEXT", written) + place
    assert filled(source, called(**content)) == (text + "1" + ("8" if place else ""), notices)


def test_a_content_beside_calls_is_unchanged() -> None:
    source = CALLS.replace("TEXT", "{{ m['content'] + '!' }}")
    assert filled(source, called(content="")) == ("!1", [])
    assert filled(source, called(content="a")) == ("a!1", [])


@pytest.mark.parametrize("place", ["", IN_A_SUBPROCESS], ids=["in this process", "in a subprocess"])
async def test_a_form_that_fails_in_a_call_is_followed_by_the_next(place: str) -> None:
    at_end = (
        "{% if loop.last %}{{ m['content'] + '!' }}{% endif %}"  # the calls of the probe are never the last message
    )
    template = jinja(CALLS.replace("TEXT", at_end) + place)
    body = dialogue({"messages": called(content=None)[:2]})
    for prompt in (template.render(body), await template.render_async(body)):
        assert prompt.text == "!1" + ("8" if place else "")
        assert 'filled_content: messages[1].content=""' in map(str, prompt.metadata.notices)
        assert prompt.segments is not None
        assert "".join([segment.text for segment in prompt.segments]) == prompt.text


NULL_REFUSED = (
    "{% if m.content is defined and m.content is none %}{{ raise_exception('content is null') }}{% endif %}"
    "{% if WHEN %}{{ m.content + '!' }}{% endif %}"
)


@pytest.mark.parametrize("place", ["", IN_A_SUBPROCESS], ids=["in this process", "in a subprocess"])
@pytest.mark.parametrize("when", ["tools", "not tools", "loop.last"])
async def test_a_form_that_the_template_refuses_is_followed_by_the_next(when: str, place: str) -> None:
    source = CALLS.replace("TEXT", NULL_REFUSED.replace("WHEN", when)) + "{% if tools %}{% endif %}" + place
    template = jinja(source, tools={"parser": "hermes"})
    assert template.notes == ()
    for tools in ({}, {"tools": [TOOL]}):
        for messages in (called(content=None), called(content=None)[:2]):
            body = dialogue({"messages": messages, **tools})
            needed = {"tools": bool(tools), "not tools": not tools, "loop.last": len(messages) == 2}[when]
            for prompt in (template.render(body), await template.render_async(body)):
                assert prompt.text == ("!1" if needed else "1") + ("8" if place else "")
                notices = [str(one) for one in prompt.metadata.notices if one.rule == "filled_content"]
                assert notices == ['filled_content: messages[1].content=""'] * needed


async def test_a_conversation_that_renders_without_the_content_is_rendered_so() -> None:
    written = (
        "{% if not loop.last and m.content is not defined %}{{ raise_exception('no content') }}{% endif %}"
        "{{ 'null' if m.content is defined else 'left out' }}"
    )
    template = jinja(CALLS.replace("TEXT", written))  # each call of the probes needs null
    for messages, text in ((called(content=None), "null1"), (called(content=None)[:2], "left out1")):
        body = dialogue({"messages": messages})
        for prompt in (template.render(body), await template.render_async(body)):
            assert prompt.text == text
            assert not [one for one in prompt.metadata.notices if one.rule == "filled_content"]


@pytest.mark.parametrize("place", ["", IN_A_SUBPROCESS], ids=["in this process", "in a subprocess"])
async def test_a_call_that_no_form_renders_has_the_error_of_the_expected_form(place: str) -> None:
    refuses = "{% if messages[0].content != '7031948265' %}{{ raise_exception('hello') }}{% endif %}"
    template = jinja(CALLS.replace("TEXT", "{{ m['content'] + '!' }}") + refuses + place)
    body = dialogue({"messages": called(content=None)})
    with pytest.raises(InvalidInput, match="refuses the conversation: hello"):
        template.render(body)
    with pytest.raises(InvalidInput, match="refuses the conversation: hello"):
        await template.render_async(body)


def test_a_null_that_was_not_expected_has_a_notice() -> None:
    at_end = "{% if loop.last %}{{ 'null' if m.content is none else m.content + 1 }}{% endif %}"
    text, notices = filled(CALLS.replace("TEXT", at_end), called(content=None)[:2])
    assert (text, notices) == ("null1", ["filled_content: messages[1].content=null"])


def test_a_call_that_no_form_renders_fails() -> None:
    with pytest.raises(TemplateFailure, match="UndefinedError"):
        filled(CALLS.replace("TEXT", "{{ m.content + 1 }}"), called(content=None))


def test_arguments_may_nest_as_deep_as_a_body() -> None:
    deep = {**CALL, "function": {"name": "f", "arguments": '{"a":' * 60 + "1" + "}" * 60}}
    body = {"messages": [*HELLO["messages"], {"role": "assistant", "tool_calls": [deep]}]}
    assert said("{{ messages[-1].tool_calls[0].function.arguments }}", body) == "{'a': " * 60 + "1" + "}" * 60


def test_arguments_are_passed_as_an_object_or_as_text() -> None:
    body = {"messages": [*HELLO["messages"], {"role": "assistant", "content": None, "tool_calls": [CALL]}]}
    source = "{{ messages[-1].tool_calls[0].function.arguments | tojson }}"
    assert said(source, body) == '{"a": 1}'
    assert said(source, body, tool_arguments="text") == '"{\\"a\\": 1}"'


REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], type[MetaTemplateError], str | None, str]] = {
    # name: (template, keys, fields, error, param, part of the message)
    "by its own words": (
        "{{ raise_exception('Roles must alternate') }}", {}, {}, InvalidInput, "messages", "Roles must alternate",
    ),
    "a variable that is not listed": (
        "{{ x }}", {"request_kwargs": ["y"]}, {"chat_template_kwargs": {"x": 1}}, ForbiddenInput,
        "chat_template_kwargs.x", "allowed variables: y",
    ),
    "tools nobody writes": (CHATML, {}, {"tools": [TOOL]}, UnsupportedInput, "tools", "does not support tools"),
    "calls nobody writes": (
        CHATML, {}, {"messages": [{"role": "assistant", "content": "x", "tool_calls": [CALL]}]},
        UnsupportedInput, "messages[0].tool_calls", "does not support tool_calls",
    ),
    "arguments that are no JSON": (
        "{{ messages[0].tool_calls }}", {},
        {"messages": [{"role": "assistant", "content": "x",
                       "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{"}}]}]},
        InvalidInput, "messages[0].tool_calls[0].function.arguments", "must be a JSON object",
    ),
    "calls without a content": (
        CHATML, {}, {"messages": [{"role": "assistant", "tool_calls": [CALL]}]},
        UnsupportedInput, "messages[0].tool_calls", "does not support tool_calls",
    ),
    "arguments that nest 600 deep": (
        "{{ messages[0].tool_calls }}", {},
        {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{**CALL, "function": {
            "name": "f", "arguments": '{"a":' * 600 + "1" + "}" * 600}}]}]},
        InvalidInput, "messages[0].tool_calls[0].function.arguments", "deeper than 64 levels",
    ),
    "arguments that nest beyond Python": (
        "{{ messages[0].tool_calls }}", {},
        {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{**CALL, "function": {
            "name": "f", "arguments": '{"a":' * 60000 + "1" + "}" * 60000}}]}]},
        InvalidInput, "messages[0].tool_calls[0].function.arguments", "deeper than 64 levels",
    ),
    "an image": (
        CHATML, {}, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]},
        UnsupportedMedia, "messages[0].content[0]", "accepts only text",
    ),
    "an error of its own": (
        "\n{% for m in messages %}\n{{ m.content + 1 }}{% endfor %}", {}, {}, TemplateFailure, None,
        "line 3 of the template: TypeError",
    ),
    "what it calls undefined": ("{{ nope.nope }}", {}, {}, TemplateFailure, None, "line 1 of the template: UndefinedError"),
    "a message that is left out": (
        "{{ messages[0].content }}", {},
        {"messages": [*HELLO["messages"], {"role": "assistant", "content": "lost"}], "continue_final_message": True,
         "add_generation_prompt": False},
        InvalidInput, "continue_final_message", "changes or leaves out",
    ),
    "a message that is written twice": (
        "{{ messages[-1].content }}{{ messages | tojson }}", {},
        {"messages": [*HELLO["messages"], {"role": "assistant", "content": "said"}], "continue_final_message": True,
         "add_generation_prompt": False},
        InvalidInput, "continue_final_message", "writes the last message twice",
    ),
    "to go on with a user": (
        CHATML, {}, {"continue_final_message": True, "add_generation_prompt": False}, InvalidInput,
        "continue_final_message", "an assistant message as the last message",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_is_refused(name: str) -> None:
    source, keys, fields, kind, param, part = REFUSED[name]
    with pytest.raises(kind) as caught:
        said(source, {**HELLO, **fields}, **keys)
    assert caught.value.param == param
    assert part in caught.value.message


NOTICES = {  # name: (template, keys, messages, notices)
    "nothing to tell": (CHATML, {}, HELLO["messages"], []),
    "the frozen clock": ("{{ messages[0].content }}{{ strftime_now('%Y') }}", {}, HELLO["messages"],
                         ["frozen_clock: 2024-07-26"]),
    "a clock that was asked for": ("{{ messages[0].content }}{{ strftime_now('%Y') }}", {"clock": "2024-07-26"},
                                   HELLO["messages"], []),
    "a variable without a value": ("{{ messages[0].content }}{{ x }}{{ messages[0].y }}", {}, HELLO["messages"],
                                   ["undefined_variable: x", "undefined_variable: y"]),
    "a name that is not printed": (CHATML, {}, [{"role": "user", "content": "a", "name": "n"}],
                                   ["ignored_field: messages[0].name"]),
    "words that are left out": ("{{ messages[0].content }}", {}, [*HELLO["messages"], {"role": "user", "content": "b?"}],
                                ["changed_content: messages[1]"]),
    "words that are changed": ("{{ messages[0].content | upper }}", {}, HELLO["messages"],
                               ["changed_content: messages[0]"]),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTICES)
def test_a_prompt_has_notices_of(name: str) -> None:
    source, keys, messages, notices = NOTICES[name]
    prompt = jinja(source, **keys).render(dialogue({"messages": messages}))
    assert [str(notice) for notice in prompt.metadata.notices] == notices


def test_an_open_turn_ends_where_the_message_ends() -> None:
    body = {
        "messages": [*HELLO["messages"], {"role": "assistant", "content": "The answer "}],
        "continue_final_message": True,
        "add_generation_prompt": False,
    }
    head = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nThe answer"
    assert said(CHATML, body) == f"{head} "
    assert said(CHATML.replace("message.content", "message.content | trim"), body) == head


def segments(
    source: str, messages: list[dict[str, Any]], keys: dict[str, Any] | None = None, **fields: Any
) -> list[tuple[str, str, bool]]:
    found = jinja(source, **(keys or {})).render(dialogue({"messages": messages, **fields})).segments
    assert found is not None
    return [(one.text, one.origin, one.scaffold) for one in found]


def test_segments_have_the_origin_of_each_text() -> None:
    talk = [{"role": "system", "content": " <|im_end|>\n"}, {"role": "user", "content": "hi"}]
    assert segments(CHATML, talk) == [
        ("<|im_start|>system\n ", "template", True),
        ("<|im_end|>", "messages[0]", False),
        ("\n<|im_end|>\n<|im_start|>user\n", "template", True),
        ("hi", "messages[1]", False),
        ("<|im_end|>\n", "template", True),
        ("<|im_start|>assistant\n", "generate", True),
    ]


def test_a_split_text_keeps_its_origin() -> None:
    source = "{{ '<a>' + messages[0].content.split('</think>')[-1].lstrip('\\n') + '</a>' }}"
    assert segments(source, [{"role": "user", "content": "hm</think>\n\n42"}]) == [
        ("<a>", "template", True),
        ("42", "messages[0]", False),
        ("</a>", "template", True),
    ]


def test_texts_in_tools_are_the_clients() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": 'say "<|im_end|>"'}}
    found = segments("{{ tools | tojson }}!", HELLO["messages"], {"tools": {"parser": "json"}}, tools=[tool])
    assert ('say \\"<|im_end|>\\"', "tools[0]", False) in found


def test_variables_of_the_request_are_the_clients() -> None:
    found = segments(
        "<a>{{ x }}</a>{{ y.k }}",
        HELLO["messages"],
        {"request_kwargs": ["x", "y"], "kwargs": {"z": "z"}},
        chat_template_kwargs={"x": "<|im_end|>", "y": {"k": "w"}},
    )
    assert found == [
        ("<a>", "template", True),
        ("<|im_end|>", "chat_template_kwargs.x", False),
        ("</a>", "template", True),
        ("w", "chat_template_kwargs.y", False),
    ]


def test_keys_of_the_client_are_the_clients() -> None:
    schema = {"type": "object", "properties": {"ignore_all": {"type": "string"}, "tools": {"type": "integer"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    found = segments("{{ tools | tojson }}!", HELLO["messages"], {"tools": {"parser": "json"}}, tools=[tool])
    assert [text for text, origin, _ in found if origin == "tools[0]"][-2:] == ["ignore_all", "tools"]


def test_a_text_that_the_template_has_cut_is_mixed() -> None:
    assert segments("<a>{{ messages[0].content[:3] }}", HELLO["messages"]) == [("<a>hel", "mixed", False)]


def test_a_forced_call_begins_behind_the_prompt() -> None:
    keys = {"tools": {"parser": "json", "force": {"begin": '{"name": "', "end": '", '}}}
    template = jinja("{{ tools | length }}", **keys)
    asked = {**HELLO, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}
    prompt = template.render(dialogue(asked))
    assert (prompt.text, prompt.metadata.opened) == ('1{"name": "f", ', '{"name": "f", ')
    assert [(one.text, one.origin) for one in prompt.segments or ()][1:] == [
        ('{"name": "', "generate"),
        ("f", "tool_choice"),
        ('", ', "generate"),
    ]


def test_tool_choice_none_hides_the_tools() -> None:
    template = jinja("{{ tools }}", tools={"parser": "json"})
    assert template.render(dialogue({**HELLO, "tools": [TOOL], "tool_choice": "none"})).text == "None"
