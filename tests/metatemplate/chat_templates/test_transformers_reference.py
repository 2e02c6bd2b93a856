"""The gateway's Jinja renders as ``transformers`` does, over the whole matrix; runs where the package is installed.

``test_goldens.py`` compares with its recorded prompts, and needs no package.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.workshop.chat_folders import read_chat_folder
from gateway.workshop.parity.cases import matrix
from gateway.workshop.parity.compare import compare
from gateway.workshop.parity.sides import chat_reference
from gateway.workshop.parity.transformers_reference import TransformersTemplate, installed
from metatemplate.errors import InvalidInput, TemplateFailure
from metatemplate.templates.registry import build
from tests.metatemplate.chat_templates import cases
from tests.metatemplate.chat_templates.samples import dialogue

os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

asked = pytest.mark.skipif(
    not installed(), reason="transformers is not installed here; test_goldens.py compares with what it recorded"
)

NAMES = sorted(path.stem for path in cases.FOLDER.glob("*.jinja"))


def original(folder: Path, source: str) -> TransformersTemplate:
    (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(cases.TOKENS), encoding="utf-8")
    return TransformersTemplate(read_chat_folder(folder / "chat_template.jinja").spec)


@asked
@pytest.mark.parametrize("name", NAMES)
def test_both_engines_make_the_same_of_the_matrix(name: str, tmp_path: Path) -> None:
    theirs = original(tmp_path, (cases.FOLDER / f"{name}.jinja").read_text(encoding="utf-8"))
    results = compare(chat_reference(build(theirs.spec)), chat_reference(theirs), matrix(cases.TOKENS.values()))
    assert not [result for result in results if result.is_different]
    assert sum(result.verdict == "same" for result in results) > 30


TESTS_NULL = """\
{%- for m in messages %}
    {{- '<|' + m['role'] + '|>' }}
    {%- if m['tool_calls'] is defined %}
        {%- if m['content'] is none %}{{ 'calls:' }}{% else %}{{ m['content'] + 'calls:' }}{% endif %}
        {{- m['tool_calls'] | tojson }}
    {%- else %}
        {{- m['content'] }}
    {%- endif %}
{%- endfor %}"""


@asked
def test_both_engines_give_null_to_a_template_that_tests_the_content_for_null(tmp_path: Path) -> None:
    theirs = original(tmp_path, TESTS_NULL)
    results = compare(chat_reference(build(theirs.spec)), chat_reference(theirs), matrix(cases.TOKENS.values()))
    assert not [result for result in results if result.is_different]
    assert any("|>calls:" in result.ours.text for result in results)


HELLO = {"messages": [{"role": "user", "content": "hello"}]}
GOES_ON = {
    "messages": [*HELLO["messages"], {"role": "assistant", "content": "I"}],
    "continue_final_message": True,
    "add_generation_prompt": False,
}

REFUSALS: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "its own": ("{{ raise_exception('no') }}", HELLO, InvalidInput, "refuses the conversation: no"),
    "a mistake of the template": ("{{ messages + 1 }}", HELLO, TemplateFailure, "TypeError"),
    "a message that is not kept": (
        "{{ messages[0].content }}{% if messages[1].content %}{% endif %}",
        GOES_ON,
        InvalidInput,
        "transformers refuses",
    ),
}


@asked
@pytest.mark.parametrize(("source", "body", "error", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_told_in_our_words(
    tmp_path: Path, source: str, body: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        original(tmp_path, source).render(dialogue(body))


@asked
def test_a_template_for_tools_is_taken_with_tools(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | length }} tools"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}), encoding="utf-8")
    theirs = TransformersTemplate(read_chat_folder(tmp_path / "tokenizer_config.json").spec)
    texts = {case.name: theirs.render(case.dialogue).text for case in matrix() if case.name in ("one turn", "one tool")}
    assert texts == {"one turn": "plain", "one tool": "1 tools"}
