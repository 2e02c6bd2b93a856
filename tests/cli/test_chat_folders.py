"""The chat template of a folder, and its special tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import ConfigError
from gateway.workshop.chat_folders import chat_template_in, read_chat_folder
from gateway.workshop.parity.cases import matrix
from gateway.workshop.parity.sides import chat_reference
from metatemplate.templates.registry import build

PLAIN = "{{ bos_token }}{{ messages[0].content }}"
ONE = matrix()[0]


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


FOLDERS: dict[str, tuple[dict[str, Any], str | None]] = {
    # files, the one that holds the template
    "a template alone": ({"chat_template.jinja": PLAIN}, "chat_template.jinja"),
    "both: the newer form goes before": (
        {"chat_template.jinja": PLAIN, "tokenizer_config.json": {"chat_template": "old"}},
        "chat_template.jinja",
    ),
    "in the tokenizer's configuration": ({"tokenizer_config.json": {"chat_template": PLAIN}}, "tokenizer_config.json"),
    "beside a tokenizer's configuration": (
        {"tokenizer_config.json": {}, "chat_template.json": {"chat_template": PLAIN}},
        "chat_template.json",
    ),
    "in a processor's configuration": (
        {"processor_config.json": {"chat_template": PLAIN}},
        "processor_config.json",
    ),
    "in both files of processors, as they take them": (
        {"chat_template.json": {"chat_template": "old"}, "processor_config.json": {"chat_template": PLAIN}},
        "processor_config.json",
    ),
    "none": ({"tokenizer_config.json": {"bos_token": "<s>"}}, None),
    "an empty folder": ({}, None),
}


@pytest.mark.parametrize(("files", "name"), FOLDERS.values(), ids=FOLDERS)
def test_where_a_folder_keeps_its_template(tmp_path: Path, files: dict[str, Any], name: str | None) -> None:
    assert chat_template_in(write(tmp_path, files)) == (None if name is None else tmp_path / name)


TOKENS: dict[str, tuple[dict[str, Any], str]] = {
    # files beside the template, what it renders
    "none": ({}, "What is 1+1?"),
    "a text": ({"tokenizer_config.json": {"bos_token": "<s>"}}, "<s>What is 1+1?"),
    "an object": ({"tokenizer_config.json": {"bos_token": {"content": "<b>", "lstrip": False}}}, "<b>What is 1+1?"),
    "null": ({"tokenizer_config.json": {"bos_token": None}}, "What is 1+1?"),
    "an older folder's": (
        {"tokenizer_config.json": {}, "special_tokens_map.json": {"bos_token": "<m>"}},
        "<m>What is 1+1?",
    ),
    "an older folder's, said twice": (
        {"tokenizer_config.json": {"bos_token": "<s>"}, "special_tokens_map.json": {"bos_token": "<m>"}},
        "<m>What is 1+1?",
    ),
    "a newer folder's map is not read": (
        {"tokenizer_config.json": {"added_tokens_decoder": {}}, "special_tokens_map.json": {"bos_token": "<m>"}},
        "What is 1+1?",
    ),
    "behind ten thousand added tokens": (
        {
            "tokenizer_config.json": {
                "added_tokens_decoder": {
                    str(n): {"content": f"<unused_{n}>", "special": True, "x": "y" * 200} for n in range(10_000)
                },
                "bos_token": "<s>",
            }
        },
        "<s>What is 1+1?",
    ),
}


@pytest.mark.parametrize(("files", "text"), TOKENS.values(), ids=TOKENS)
def test_the_tokens_are_those_of_the_folder(tmp_path: Path, files: dict[str, Any], text: str) -> None:
    write(tmp_path, {"chat_template.jinja": PLAIN, **files})
    spec = read_chat_folder(tmp_path / "chat_template.jinja").spec
    assert build(spec).render(ONE.dialogue).text == text


def test_variables_are_given_to_the_template(tmp_path: Path) -> None:
    write(tmp_path, {"chat_template.jinja": "{% if deep %}deep{% endif %}{{ messages[0].content }}"})
    path = tmp_path / "chat_template.jinja"
    assert build(read_chat_folder(path, None, {"deep": True}).spec).render(ONE.dialogue).text == "deepWhat is 1+1?"
    assert build(read_chat_folder(path).spec).render(ONE.dialogue).text == "What is 1+1?"


@pytest.mark.parametrize("speaks", [True, False])
def test_tools_are_written_by_a_template_that_speaks_of_them(tmp_path: Path, speaks: bool) -> None:
    write(tmp_path, {"chat_template.jinja": f"{'{{ tools | length }}' if speaks else ''}{{{{ messages[0].content }}}}"})
    spec = read_chat_folder(tmp_path / "chat_template.jinja").spec
    assert (spec.tools is not None) == speaks
    template = build(spec)
    asked = next(case for case in matrix() if case.name == "two tools")
    if speaks:
        assert template.render(asked.dialogue).text == "2What is 12+34?"
    else:
        with pytest.raises(Exception, match="does not support tools"):
            chat_reference(template).render(asked.dialogue)


def test_another_chat_template_is_given_what_ours_is_given(tmp_path: Path) -> None:
    write(tmp_path, {"chat_template.jinja": "{{ strftime_now('%Y') }} {{ messages[0].content is string }}"})
    path = tmp_path / "chat_template.jinja"
    parts = next(case for case in matrix() if case.name == "content in parts")
    assert build(read_chat_folder(path).spec).render(parts.dialogue).text == "2024 True"
    like = read_chat_folder(path).spec.jinja
    assert like is not None
    ours = replace(like, clock="2031-01-02", content="parts")
    assert build(read_chat_folder(path, ours, {}).spec).render(parts.dialogue).text == "2031 False"


BROKEN: dict[str, tuple[str, bytes, str]] = {
    "no template in it": ("tokenizer_config.json", b"{}", "has no key chat_template"),
    "no JSON": ("tokenizer_config.json", b"{", "is not JSON"),
    "no object": ("tokenizer_config.json", b"[1]", "must contain a JSON object"),
    "no UTF-8": ("chat_template.jinja", b"\xff", "is not UTF-8"),
    "no Jinja": ("chat_template.jinja", b"{% for %}", "line 1 of the template"),
    "too deep": ("tokenizer_config.json", b'{"a":' * 100_000, "is not JSON"),
}


@pytest.mark.parametrize(("name", "data", "words"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError, match=words) as caught:
        read_chat_folder(tmp_path / name)
    assert caught.value.problems[0].file == str(tmp_path / name)
