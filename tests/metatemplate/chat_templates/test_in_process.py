"""Short conversations are rendered in this process, long ones and those of slow templates in a subprocess."""

from __future__ import annotations

from typing import Any

import pytest

from metatemplate.chat_templates import in_process
from metatemplate.chat_templates.in_process import CHARACTERS_PER_MESSAGE, MESSAGE_LIMITS, message_limits
from metatemplate.chat_templates.sandbox.limits import size_of
from metatemplate.errors import TemplateFailure
from tests.metatemplate.chat_templates.samples import CHATML, dialogue, jinja

MOST = MESSAGE_LIMITS[-1]
SPIN = "{% for i in range(99999) %}" + "{% set x = i %}" * 60 + "{% endfor %}"
REFUSING = "{{% if {} %}}{{{{ raise_exception('no') }}}}{{% endif %}}"


LIMITS = {  # name: (template, messages)
    "an ordinary template": (CHATML, MOST),
    "one that refuses every conversation": ("{{ raise_exception('no') }}", 0),
    "one that refuses a list of parts": (REFUSING.format("messages[0].content is not string") + CHATML, MOST),
    "one that refuses a text": (REFUSING.format("messages[0].content is string") + "x", MOST),
    "one that wants a system message": (REFUSING.format("messages[0].role != 'system'") + CHATML, MOST),
    "one that refuses a system message": (REFUSING.format("messages[0].role == 'system'") + CHATML, MOST),
    "one that wants an answer at the end": (REFUSING.format("messages[-1].role == 'user'") + CHATML, MOST),
    "one that wants one message": (REFUSING.format("messages[1:]") + CHATML, MOST),
    "one that is slow where it does not refuse": (REFUSING.format("messages[0].role != 'system'") + SPIN, 0),
    "one that fails": ("{{ 'x' + 1 }}", 0),
    "one that fails for many messages": ("{% if messages | length > 16 %}{{ 'x' + 1 }}{% endif %}", 16),
    "one that needs all memory": ("{{ (messages[0].content * 10**9) | length }}", 0),
    "one that is slow": (SPIN, 0),
    "one that never ends": ("{% for a in range(9999) %}" * 4 + "x" + "{% endfor %}" * 4, 0),
    "one that is slow for many messages": ("{% if messages | length > 16 %}" + SPIN + "{% endif %}", 16),
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_limit_of_messages_is_measured(name: str) -> None:
    source, limit = LIMITS[name]
    assert message_limits("t", (source,), "", "{}") == (limit,)


def test_a_template_that_never_ends_is_loaded_and_stopped() -> None:
    loops = "{% for a in range(2000) %}{% for b in range(2000) %}{% for c in range(2000) %}"
    template = jinja(loops + "{% endfor %}" * 3)
    with pytest.raises(TemplateFailure, match="took longer than"):
        template.render(dialogue({"messages": messages(1, 5)}))


def test_compiling_a_template_computes_no_constants() -> None:
    assert (
        jinja("{% if tools %}{{ 9 ** (9 ** 9) }}{% endif %}").render(dialogue({"messages": messages(1, 5)})).text == ""
    )


def test_the_templates_of_a_configuration_are_measured_by_one_process() -> None:
    message_limits("a", (CHATML + "a",), "", "{}")
    first = in_process._measuring._process
    message_limits("b", (CHATML + "b", "{{ tools }}"), "", "{}")
    assert in_process._measuring._process is first is not None


def messages(count: int, characters: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "x" * characters}] * count


# name: (messages, fields of the request, rendered in this process)
PLACES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], bool]] = {
    "one message": (messages(1, 5), {}, True),
    "as many as allowed": (messages(MOST, 5), {}, True),
    "one more": (messages(MOST + 1, 5), {}, False),
    "a long message": (messages(1, MOST * CHARACTERS_PER_MESSAGE + 1), {}, False),
    "a long part": ([{"role": "user", "content": [{"type": "text", "text": "x" * 300_000}]}], {}, False),
    "long tools": (
        messages(1, 5),
        {"tools": [{"type": "function", "function": {"name": "f", "description": "x" * 300_000}}]},
        False,
    ),
    "a long variable": (messages(1, 5), {"chat_template_kwargs": {"x": ["x"] * 20_000}}, False),
    "a text as variable": (messages(1, 5), {"chat_template_kwargs": {"x": "999999999"}}, True),
    "a truth value as variable": (messages(1, 5), {"chat_template_kwargs": {"x": True}}, True),
    "a number as variable": (messages(1, 5), {"chat_template_kwargs": {"x": 999_999_999}}, True),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_large_request_is_rendered_in_the_subprocess(name: str) -> None:
    talk, fields, in_process = PLACES[name]
    template = jinja(CHATML + "{% if not tools %}{{ x }}{% endif %}", request_kwargs=["x"], tools={"parser": "json"})
    assert template._job(dialogue({"messages": talk, **fields})).in_process == in_process


def test_the_text_of_a_long_conversation_is_the_same() -> None:
    text = "word " * 100_000
    prompt = jinja().render(dialogue({"messages": [{"role": "user", "content": text}]}))
    assert prompt.text == f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert [segment.origin for segment in prompt.segments or ()] == ["template", "messages[0]", "template", "generate"]


def test_counting_stops_beyond_the_limit() -> None:
    assert size_of({"a": ["bc", 1, None]}, 1000) == 5 * 16 + 3
    assert 100 < size_of([[["x" * 90] * 10] * 10] * 10, 100) < 400
