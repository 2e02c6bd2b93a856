"""The shipped templates say what their models expect, and say where they differ from upstream.

``golden.jsonl`` was recorded by hand from the reference package (opencompass 0.5.4): its string
parser and its message parser, in generation mode, on each shipped value as it is (``upstream``)
and on each preset's own OpenCompass keys (``preset``).
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gateway.config.schema.kinds import FILE_NAME
from metatemplate.files.template import parse_spec
from metatemplate.files.yaml import parse
from metatemplate.templates.registry import build, run_examples
from metatemplate.templates.spec import Example, RoleSpec, TemplateSpec
from metatemplate.values.dialogue import Dialogue, Message, plain_messages
from metatemplate.values.prompt import Prompt
from tests.presets.published import PRESETS
from tests.presets.upstream import COVERED, OURS, VALUES, Change, normal

ROOT = Path(__file__).parents[2]
FILES = {
    path.stem: path
    for path in sorted((ROOT / "meta_templates").glob("*.yaml"))
    if not path.stem.startswith("lazyllm-")  # those are held against their own reference, in test_lazyllm.py
}
GOLDEN = [json.loads(line) for line in (Path(__file__).parent / "golden.jsonl").read_text("utf-8").splitlines()]
OF_PRESETS = [row for row in GOLDEN if "preset" in row]
OF_UPSTREAM = {(row["upstream"], row["conversation"]): row for row in GOLDEN if "upstream" in row}

OPENAI_ROLES = {"HUMAN": "user", "BOT": "assistant", "SYSTEM": "system"}

# What the reference makes of the slips that the presets correct: (its result, a pattern, what the pattern becomes).
EMPTY_SYSTEM_TURN = re.compile(r"(<\|im_start\|>|\[UNUSED_TOKEN_146\])system\n(<\|im_end\|>|\[UNUSED_TOKEN_145\])\n")
SYSTEM_IN_ROUND = {25, 26, 34, 36}
LAST_ANSWER_SENT = {23}
REFUSED = {47}


@cache
def preset(name: str) -> TemplateSpec:
    """A preset, through the same checks as at start."""
    data = FILES[name].read_bytes()
    document = parse(data, FILES[name].name)
    assert document.problems == []
    return parse_spec(document.value, name=name)


def rendered(name: str, messages: list[dict[str, str]]) -> Prompt:
    others = tuple([Message(each["role"], each["content"], raw=each) for each in messages])
    return build(preset(name)).render(Dialogue(plain_messages(messages) or others))


def outcome(name: str, messages: list[dict[str, str]]) -> Any:
    """The prompt string, or the messages of an API template."""
    prompt = rendered(name, messages)
    return prompt.text if prompt.messages is None else [dict(message) for message in prompt.messages]


def as_openai(expected: Any) -> Any:
    """The reference's result; its own message form becomes OpenAI's."""
    if isinstance(expected, str):
        return expected
    return [{"role": OPENAI_ROLES[turn["role"]], "content": turn["prompt"]} for turn in expected]


@pytest.mark.parametrize("name", FILES)
def test_a_preset_is_a_good_template_whose_examples_hold(name: str) -> None:
    assert FILE_NAME.fullmatch(name)
    spec = preset(name)
    assert spec.description
    assert run_examples(build(spec)) == []


@pytest.mark.parametrize("name", FILES)
def test_a_preset_shows_one_turn_many_turns_and_a_system_message(name: str) -> None:
    shapes = {tuple(message["role"] for message in example.messages) for example in preset(name).examples}
    assert {("user",), ("user", "assistant", "user"), ("system", "user")} <= shapes


@pytest.mark.parametrize("name", FILES)
def test_a_preset_starts_with_a_comment_that_says_for_which_models(name: str) -> None:
    header = FILES[name].read_text("utf-8").split("\n\n")[0]
    assert all(line.startswith("#") for line in header.splitlines())
    assert "# For:" in header


@pytest.mark.parametrize("name", FILES)
def test_a_written_bos_stands_at_the_front(name: str) -> None:
    spec = preset(name)
    assert (spec.bos == "text") == bool(spec.bos_text)
    assert spec.begin.startswith(spec.bos_text)


@pytest.mark.parametrize(("index", "name", "changes"), COVERED, ids=[f"{index}-{name}" for index, name, _ in COVERED])
def test_a_shipped_value_and_its_stated_changes_make_the_preset(
    index: int, name: str, changes: tuple[Change, ...]
) -> None:
    value = VALUES[index]
    for change in changes:
        value = change(value)
    written = parse(FILES[name].read_bytes(), name).value
    assert normal(written) == normal(value)


def test_every_shipped_value_has_a_preset_and_every_preset_an_origin() -> None:
    assert {index for index, _, _ in COVERED} == set(range(54)) == set(range(len(VALUES)))
    assert {name for _, name, _ in COVERED} | OURS | {preset.name for preset in PRESETS} == set(FILES)


@pytest.mark.parametrize("row", OF_PRESETS, ids=lambda row: f"{row['preset']}-{row['conversation']}")
def test_a_preset_renders_what_the_reference_parser_renders(row: dict[str, Any]) -> None:
    assert outcome(row["preset"], row["messages"]) == as_openai(row["expected"])


SAME_TURNS = dict.fromkeys(("chatml-tools", "qwen3", "qwen3-coder", "qwen3-instruct"), "chatml")
"""Presets that add the gateway's own keys to the OpenCompass keys of another."""
OPENCOMPASS_KEYS = ("begin", "end", "round", "reserved_roles", "eos_token_id")


def test_the_recording_covers_every_preset() -> None:
    without_roles = {"base"}  # in tests/metatemplate/opencompass/test_joined.py
    newer = {preset.name for preset in PRESETS}  # in test_published.py
    assert {row["preset"] for row in OF_PRESETS} | SAME_TURNS.keys() | without_roles | newer == set(FILES)


@pytest.mark.parametrize("name", SAME_TURNS)
def test_a_preset_with_the_turns_of_another_renders_what_was_recorded_for_that(name: str) -> None:
    ours, theirs = preset(name), preset(SAME_TURNS[name])
    assert all(getattr(ours, key) == getattr(theirs, key) for key in OPENCOMPASS_KEYS)
    recorded = [row for row in OF_PRESETS if row["preset"] == SAME_TURNS[name]]
    assert recorded
    for row in recorded:
        assert outcome(name, row["messages"]) == as_openai(row["expected"])


@pytest.mark.parametrize("conversation", ["one-round", "three-rounds"])
@pytest.mark.parametrize(("index", "name"), [(i, n) for i, n, _ in COVERED], ids=[f"{i}-{n}" for i, n, _ in COVERED])
def test_a_shipped_value_gave_the_same_prompt_but_for_its_slip(index: int, name: str, conversation: str) -> None:
    row = OF_UPSTREAM[index, conversation]
    if index in REFUSED:  # begin: null crashes the reference
        assert "expected" not in row
        return
    expected = as_openai(row["expected"])
    if index in SYSTEM_IN_ROUND:
        before, expected = expected, EMPTY_SYSTEM_TURN.sub("", expected)
        assert before != expected
    if index in LAST_ANSWER_SENT:
        assert expected.pop() == {"role": "assistant", "content": ""}
    # Added SYSTEM roles and token ids do not show in these conversations; InternLM2-Math's two spellings do.
    assert outcome(name, row["messages"]) == expected


STOPS = {  # preset: the stop strings in force
    "sft-demo": ("<eob>",),
    "internlm": ("<eoa>",),
    "internlm2": ("<|im_end|>",),
    "qwen": ("<|im_end|>",),
    "mistral-instruct": ("</s>",),
    "vicuna": ("</s>",),
    "deepseek-chat": ("<｜end▁of▁sentence｜>",),
    "gemma": ("<end_of_turn>",),
    "openchat": ("<|end_of_turn|>",),
    "telechat": ("<_end>",),
    "moss": ("<eom>",),
}


@pytest.mark.parametrize("name", STOPS)
def test_an_answer_ends_where_the_family_ends_it(name: str) -> None:
    assert rendered(name, [{"role": "user", "content": "hi"}]).metadata.stops == STOPS[name]


NO_END = {  # preset: what its prompt's stops must hold, since the role has no visible end
    "baichuan2": "<reserved_106>",
    "bluelm": "[|Human|]:",
    "llama-2-chat": "[INST]",
    "minicpm": "<用户>",
    "abel": "Question:",
    "tigerbot": "### Instruction:",
    "fashiongpt": "### User:",
}


@pytest.mark.parametrize("name", NO_END)
def test_without_an_end_the_next_turn_ends_the_answer(name: str) -> None:
    assert any(NO_END[name] in stop for stop in rendered(name, [{"role": "user", "content": "hi"}]).metadata.stops)


def test_a_tool_result_replaces_the_default_text_of_its_role() -> None:
    prompt = rendered("moss-thoughts", [{"role": "user", "content": "1+1=?"}, {"role": "tool", "content": "two"}])
    assert prompt.text.endswith("<|Commands|>:None蝮\n<|Results|>:two兒\n<|MOSS|>:")
    assert prompt.text.count("<|Results|>:") == 1


def test_the_reference_page_lists_every_preset() -> None:
    page = (ROOT / "docs" / "templates.md").read_text("utf-8")
    listed = re.findall(r"^\| `([^`]+)` \|", page.split("## Presets", 1)[1].split("\n## ", 1)[0], re.MULTILINE)
    assert listed == sorted(listed)
    assert set(listed) == set(FILES)


@pytest.mark.parametrize("part", [TemplateSpec, RoleSpec, Example], ids=lambda part: part.__name__)
def test_the_reference_page_explains_every_key(part: type) -> None:
    page = (ROOT / "docs" / "templates.md").read_text("utf-8")
    made_by_the_gateway = {"name", "digest", "prompter", "jinja"}  # the last two from keys that have pages of their own
    written = {"continue_final": "continue_final_message"}
    keys = {written.get(field.name, field.name) for field in fields(part)} - made_by_the_gateway
    assert keys <= set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE))
