"""The presets of LazyLLM's families write what the package writes.

``lazyllm.jsonl`` was recorded by ``record_lazyllm.py`` from lazyllm 1.4.0, on the talks of ``lazyllm-talks.json``.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gateway.config.schema.kinds import FILE_NAME
from metatemplate.files.template import parse_spec
from metatemplate.files.yaml import parse
from metatemplate.prompters.tokens import family_names
from metatemplate.templates.registry import build, run_examples
from metatemplate.templates.spec import TemplateSpec
from metatemplate.values.dialogue import Dialogue, Message, plain_messages, render_options
from metatemplate.values.prompt import Prompt

ROOT = Path(__file__).parents[2]
FILES = {path.stem: path for path in sorted((ROOT / "meta_templates").glob("lazyllm-*.yaml"))}
TALKS: dict[str, Any] = json.loads((Path(__file__).parent / "lazyllm-talks.json").read_text("utf-8"))
ROWS = [json.loads(line) for line in (Path(__file__).parent / "lazyllm.jsonl").read_text("utf-8").splitlines()]


@cache
def preset(name: str, **changes: Any) -> TemplateSpec:
    document = parse(FILES[name].read_bytes(), FILES[name].name)
    assert document.problems == []
    return parse_spec({**document.value, **changes}, name=name)


def rendered(name: str, conversation: str, **changes: Any) -> Prompt:
    talk = TALKS[conversation]
    others = tuple([Message(each["role"], each["content"], raw=each) for each in talk["messages"]])
    messages = plain_messages(talk["messages"]) or others
    return build(preset(name, **changes)).render(Dialogue(messages, render_options(tools=tuple(talk.get("tools", ())))))


def test_every_family_of_the_table_has_a_preset() -> None:
    assert set(FILES) == {f"lazyllm-{name}" for name in family_names()}
    assert {row["preset"] for row in ROWS} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_preset_is_a_good_template_whose_examples_hold(name: str) -> None:
    assert FILE_NAME.fullmatch(name)
    spec = preset(name)
    assert spec.description
    assert spec.bos_text == "" or (spec.prompter is not None and spec.prompter.tokens.sos.startswith(spec.bos_text))
    assert run_examples(build(spec)) == []
    shapes = {tuple(message["role"] for message in example.messages) for example in spec.examples}
    assert shapes == {("user",), ("user", "assistant", "user"), ("system", "user")}


@pytest.mark.parametrize("name", FILES)
def test_a_preset_starts_with_a_comment_that_says_for_which_models(name: str) -> None:
    header = FILES[name].read_text("utf-8").split("\n\n")[0]
    assert all(line.startswith("#") for line in header.splitlines())
    assert "# For:" in header


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['preset']}-{row['conversation']}")
def test_a_preset_writes_what_the_package_wrote(row: dict[str, Any]) -> None:
    prompt = rendered(row["preset"], row["conversation"])
    assert prompt.text == row["expected"]
    assert prompt.segments is not None
    assert "".join(segment.text for segment in prompt.segments) == row["expected"]


def test_the_presets_take_tools_where_the_table_has_tokens_for_them() -> None:
    with_tools = {row["preset"] for row in ROWS if row["conversation"] == "tools"}
    assert {name for name in FILES if (said := preset(name).prompter) and said.tools} == with_tools
    assert len(with_tools) == 5


STOPS = {
    "lazyllm-qwen": ("<|im_end|>",),
    "lazyllm-meta-llama-3": ("<|eot_id|>", "<|end_of_text|>"),
    "lazyllm-deepseek-r1-distill-llama": ("<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"),
    "lazyllm-internlm": ("<eoa>",),
    "lazyllm-internlm-xcomposer2": ("[UNUSED_TOKEN_145]",),
    "lazyllm-glm-4": ("<|user|>", "<|observation|>"),
    "lazyllm-baichuan2": ("<reserved_106>",),
    "lazyllm-llama-2": ("</s>",),
    "lazyllm-codellama": (),
}


@pytest.mark.parametrize("name", STOPS)
def test_an_answer_ends_where_the_table_ends_it(name: str) -> None:
    assert rendered(name, "one-round").metadata.stops == STOPS[name]


def test_the_page_lists_every_preset() -> None:
    page = (ROOT / "docs" / "prompters.md").read_text("utf-8")
    listed = re.findall(r"^\| `(lazyllm-[^`]+)` \|", page, re.MULTILINE)
    assert listed == sorted(listed)
    assert set(listed) == set(FILES)
