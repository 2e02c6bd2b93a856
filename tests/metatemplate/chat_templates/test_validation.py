"""The keys of a template file of ``kind: jinja``, and the problem that each mistake becomes."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from metatemplate.files.jinja import JINJA_KEYS
from metatemplate.files.reader import Files
from metatemplate.files.template_file import read_template
from metatemplate.templates.registry import build
from metatemplate.templates.spec import TemplateSpec
from tests.metatemplate.chat_templates.samples import CHATML, HELLO, dialogue

TOKENIZER: dict[str, Any] = {
    "bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": False},
    "eos_token": "<|im_end|>",
    "unk_token": None,
    "added_tokens_decoder": {"1": {"content": "<|endoftext|>"}, "2": {"content": "<|im_end|>"}},
    "chat_template": "{{ bos_token }}" + CHATML,
}
NAMED = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with {{ tools | length }}"}]


def read(folder: Path, keys: str, **files: Any) -> tuple[TemplateSpec | None, list[str]]:
    """A template file and its neighbours; objects are written as JSON, ``__`` in a name is a dot."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    path = folder / "t.yaml"
    path.write_text(f"kind: jinja\n{keys}\n", encoding="utf-8")
    gathered = Files(folder)
    spec = read_template(gathered, path, "t", gathered.add_problem(path))
    return spec, [str(problem) for problem in gathered.problems]


def good(folder: Path, keys: str, **files: Any) -> TemplateSpec:
    spec, problems = read(folder, keys, **files)
    assert problems == []
    assert spec is not None
    return spec


def rendered(spec: TemplateSpec, **fields: Any) -> str:
    return build(spec).render(dialogue({**HELLO, **fields})).text


def test_a_tokenizer_config_brings_template_tokens_and_bos(tmp_path: Path) -> None:
    spec = good(tmp_path, "file: tokenizer_config.json", tokenizer_config__json=TOKENIZER)
    assert rendered(spec) == "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert (spec.bos, spec.bos_text) == ("text", "<s>")
    assert build(spec).render(dialogue(HELLO)).metadata.stops == ("<|im_end|>",)


def test_a_jinja_file_takes_its_tokens_from_the_config_beside_it(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "tokenizer_config.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
    (tmp_path / "m" / "generation_config.json").write_text('{"eos_token_id": [1, 2]}', encoding="utf-8")
    (tmp_path / "m" / "chat_template.jinja").write_text("{{ eos_token }}" + CHATML, encoding="utf-8")
    spec = good(tmp_path, "file: m/chat_template.jinja\nstop: [STOP]")
    prompt = build(spec).render(dialogue(HELLO))
    assert prompt.text.startswith("<|im_end|><|im_start|>user")
    assert prompt.metadata.stops == ("<|im_end|>", "<|endoftext|>", "STOP")
    assert prompt.metadata.stop_token_ids == (1, 2)
    assert prompt.metadata.bos == "none"


def test_tokens_in_the_yaml_win(tmp_path: Path) -> None:
    keys = 'file: tokenizer_config.json\nspecial_tokens: {bos_token: "<B>", image_token: "<I>"}'
    assert rendered(good(tmp_path, keys, tokenizer_config__json=TOKENIZER)).startswith("<B><|im_start|>")


def test_named_templates_are_chosen_as_transformers_does(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    named = {"chat_template": NAMED}
    spec = good(tmp_path, "file: chat_template.json\ntools: {parser: json}", chat_template__json=named)
    assert rendered(spec) == "plain"
    assert rendered(spec, tools=tools) == "with 1"
    fixed = good(
        tmp_path, "file: chat_template.json\nvariant: tool_use\ntools: {parser: json}", chat_template__json=named
    )
    assert rendered(fixed, tools=tools) == "with 1"


def test_the_digest_is_that_of_both_files(tmp_path: Path) -> None:
    one = good(tmp_path, "file: a.jinja", a__jinja="x{{ messages[0].content }}").digest
    other = good(tmp_path, "file: a.jinja", a__jinja="y{{ messages[0].content }}").digest
    assert one != other
    assert len(one) == 12


def test_a_pinned_file_is_read(tmp_path: Path) -> None:
    digest = hashlib.sha256(CHATML.encode()).hexdigest()
    good(tmp_path, f"file: a.jinja\nsha256: {digest}", a__jinja=CHATML)


def test_a_wrong_example_refuses_the_file(tmp_path: Path) -> None:
    keys = 'template: "{{ messages[0].content }}!"\nexamples: [{messages: [{role: user, content: hi}], prompt: "hi?"}]'
    _, problems = read(tmp_path, keys)
    assert len(problems) == 1
    assert "t.yaml:3 examples.0.prompt" in problems[0].replace("[0]", ".0")
    assert "'hi!'" in problems[0]


def test_the_documentation_lists_every_key() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "chat-templates.md").read_text(encoding="utf-8")
    told = {name for row in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert told == set(JINJA_KEYS) - {"kind"}


MISTAKES: dict[str, tuple[str, dict[str, Any], str]] = {  # name: (keys, files, part of the problem)
    "neither": ("description: x", {}, "exactly one of"),
    "both": ("file: a.jinja\ntemplate: x", {"a__jinja": "x"}, "exactly one of"),
    "a missing file": ("file: a.jinja", {}, "no file a.jinja"),
    "a file outside": ("file: ../a.jinja", {}, "a file outside the folder"),
    "a changed file": (f"file: a.jinja\nsha256: {'0' * 64}", {"a__jinja": "x"}, "write the new SHA-256, 2d711642b726"),
    "a pin that is none": ("file: a.jinja\nsha256: abc", {"a__jinja": "x"}, "write the new SHA-256, 2d711642b726"),
    "a pin of nothing": (f"template: x\nsha256: {'0' * 64}", {}, "the template has changed"),
    "no JSON": ("file: a.json", {"a__json": "{"}, "a.json is not JSON"),
    "no template in it": ("file: a.json", {"a__json": {}}, "a.json has no key chat_template"),
    "no such variant": ("file: a.json\nvariant: tools", {"a__json": {"chat_template": NAMED}}, 'mean "tool_use"'),
    "no default": ("file: a.json", {"a__json": {"chat_template": NAMED[1:]}}, "to one of its templates: tool_use"),
    "a broken template": ("file: a.jinja", {"a__jinja": "a\n{% if %}"}, "line 2 of the template"),
    "an unknown filter": ("template: '{{ messages | nope }}'", {}, "nope"),
    "another template": ("template: \"{% include 'x' %}\"", {}, "include is not supported"),
    "a template that is too long": ("file: a.jinja", {"a__jinja": "x" * 65_537}, "at most 65536 are allowed"),
    "one that nests too deeply": ("file: a.jinja", {"a__jinja": "{{ " + "(" * 9000 + ")" * 9000 + " }}"}, "too deeply"),
    "one that nests in the code": ("file: a.jinja", {"a__jinja": "{{ " + "-" * 900 + "1 }}"}, "too deeply"),
    "a misspelled key": ("template: x\nrequest_kwarg: [a]", {}, 'did you mean "request_kwargs"?'),
    "a variable of ours": ("template: x\nkwargs: {messages: []}", {}, "the gateway sets"),
    "a variable of ours from a request": ("template: x\nrequest_kwargs: [tools]", {}, "the gateway sets"),
    "a token as a variable": ("template: x\nrequest_kwargs: [bos_token]", {}, "under special_tokens"),
    "tools that are not written": ("template: x\ntools: {parser: json}", {}, "does not use the variable tools"),
    "a list of tools": ("template: '{{ tools }}'\ntools: {parser: json, declare: {}}", {}, "declare: has no effect"),
    "no name": ("template: x\nrequest_kwargs: ['a b']", {}, "is not a valid variable name"),
    "a clock that is none": ("template: x\nclock: tomorrow", {}, "write a day such as 2024-07-26, or now"),
    "content of another kind": ("template: x\ncontent: list", {}, "must be one of text, parts"),
    "a BOS that is written": (
        "template: '{{ bos_token }}x'\nbos: engine\nspecial_tokens: {bos_token: '<s>'}",
        {},
        "begins with '<s>'",
    ),
    "a BOS that is not": ("template: x\nbos: text\nspecial_tokens: {bos_token: '<s>'}", {}, "does not begin with"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_becomes_a_problem(name: str, tmp_path: Path) -> None:
    keys, files, part = MISTAKES[name]
    spec, problems = read(tmp_path, keys, **files)
    assert spec is None
    assert any(part in problem for problem in problems), problems
