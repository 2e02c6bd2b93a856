"""The table of today's families in docs/templates.md, and the files below it, hold for the published chat templates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.workshop.parity.cases import ADD
from metatemplate.errors import InputError
from metatemplate.library import load, parse_answer, render
from metatemplate.templates.base import Template
from tests.presets.published import PRESETS, source

PAGE = Path(__file__).parents[2] / "docs/templates.md"
SECTION = PAGE.read_text("utf-8").split("\n## Models of 2025 and 2026\n", 1)[1].split("\n## ", 1)[0]
FILES: Mapping[str, str] = {
    text.partition("\n")[0].removeprefix("# meta_templates/").removesuffix(".yaml"): text
    for text in re.findall(r"^# meta_templates/.*\n(?:[a-z].*\n)+", SECTION, re.MULTILINE)
}
"""Name → content of each file for a chat template."""
TOKENS = {
    "deepseek": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "gemma": ("<bos>", "<eos>"),
    "ministral": ("<s>", "</s>"),
}
"""Part of the name of a file → the BOS and the EOS of its models. The others have no BOS, and end in ``<|im_end|>``."""


@dataclass(frozen=True)
class Row:
    """A row of the table, with one of its chat templates."""

    family: str
    text: str
    thinking: str
    earlier: str
    tools: str
    how: str
    source: str

    @property
    def variable(self) -> str:
        """The variable that switches the reasoning."""
        found = re.search(r"; `(\w+)`", self.thinking)
        return found[1] if found else ""

    @property
    def switch(self) -> bool:
        """Whether the reasoning can be switched off."""
        return "; " in self.thinking and self.variable != "reasoning_effort"

    def asked(self, *, thinks: bool) -> dict[str, Any]:
        """The options of a request whose answer has reasoning, or has none."""
        value = "high" if self.variable == "reasoning_effort" else thinks
        return {"template_kwargs": {self.variable: value}} if self.variable else {}

    @property
    def meta(self) -> str:
        """The preset for this family; empty if there is none."""
        found = re.search(r"meta `([^`]+)`", self.how)
        return found[1] if found else ""

    def template(self, folder: Path) -> Template:
        """The template of the file for this row, beside the published chat template. Without a file, the preset."""
        named = re.search(r"jinja `([^`]+)`", self.how)
        if named is None:
            return load(self.meta)
        name = named[1]
        bos, eos = next((tokens for part, tokens in TOKENS.items() if part in name), ("", "<|im_end|>"))
        (folder / name).mkdir()
        (folder / name / "chat_template.jinja").write_text(source(self.source), "utf-8")
        config = {key: text for key, text in (("bos_token", bos), ("eos_token", eos)) if text}
        (folder / name / "tokenizer_config.json").write_text(json.dumps(config))
        (folder / f"{name}.yaml").write_text(FILES[name], "utf-8")
        return load(folder / f"{name}.yaml")


CELLS = [
    [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in re.findall(r"^\| (?!Family)[^-].*\|$", SECTION, re.MULTILINE)
]
ROWS = [Row(*[*cells[:-1], one]) for cells in CELLS for one in cells[-1].split(", ")]
ASKED = {"role": "user", "content": "What is 12+34?"}
REASONING, ANSWER = "12+34 is 46, I think.", "It is 46."
CALL = {"id": "functions.add:0", "type": "function", "function": {"name": "add", "arguments": '{"a": 12, "b": 34}'}}
RESULT = {"role": "tool", "tool_call_id": "functions.add:0", "name": "add", "content": "46"}
of_each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.source)
of_thinking = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.thinking != "none"], ids=lambda row: row.source
)
of_switch = pytest.mark.parametrize("row", [row for row in ROWS if row.switch], ids=lambda row: row.source)


def said(reasoning: str, *calls: Mapping[str, Any]) -> dict[str, Any]:
    """An answer with reasoning, or calls with reasoning."""
    message = {"role": "assistant", "content": "" if calls else ANSWER, "reasoning_content": reasoning}
    return {**message, "tool_calls": list(calls)} if calls else message


def test_the_table_and_the_files_belong_together() -> None:
    assert len(CELLS) >= 25
    assert {name for row in ROWS for name in re.findall(r"jinja `([^`]+)`", row.how)} == {*FILES}
    assert {row.meta for row in ROWS} - {""} == {preset.name for preset in PRESETS}


@of_each_row
def test_the_tool_format_and_the_thinking_of_a_row_are_those_of_its_template(row: Row, tmp_path: Path) -> None:
    spec = row.template(tmp_path).spec
    assert row.thinking == "none" if spec.thinking is None else row.thinking.startswith(f"`{spec.thinking.begin}`, by ")
    if row.family != "DeepSeek-V3.1":  # a note below the table tells how its tools are written
        assert row.tools == ("none" if spec.tools is None else f"`{spec.tools.parser}`")
    if spec.jinja is not None:
        assert row.variable in ("", *spec.jinja.request_kwargs)
        thinking = () if spec.thinking is None else (spec.thinking.begin, spec.thinking.end)
        texts = (row.variable, *spec.stop, *thinking)
        assert [text for text in texts if text not in source(row.source)] == []


def answers(template: Template, opened: bool, asked: Mapping[str, Any]) -> Iterator[str]:
    """An answer with reasoning between the markers, and one as the chat template writes it, if it does."""
    thinking = template.spec.thinking
    assert thinking is not None
    yield f"{'' if opened else thinking.begin}\n{REASONING}\n{thinking.end}\n\n{ANSWER}"
    prompt, whole = render(template, [ASKED], **asked), render(template, [ASKED, said(REASONING)], whole=True, **asked)
    if REASONING in whole.text:
        assert whole.text.startswith(prompt.text)
        yield whole.text.removeprefix(prompt.text)


@of_thinking
def test_reasoning_is_read_as_the_chat_template_writes_it(row: Row, tmp_path: Path) -> None:
    template, asked = row.template(tmp_path), row.asked(thinks=True)
    thinking = template.spec.thinking
    assert thinking is not None
    opened = render(template, [ASKED], **asked).text.rstrip().endswith(thinking.begin)
    assert opened == ("by the prompt" in row.thinking)
    texts = [*answers(template, opened, asked)]
    assert len(texts) == 2 - (row.source in NOT_WRITTEN)
    for text in texts:
        found = parse_answer(template, text, [ASKED], **asked)
        assert (found.reasoning.strip(), found.content.strip()) == (REASONING, ANSWER)


NOT_WRITTEN = {
    "moonshotai-Kimi-K2-Thinking",
    "moonshotai-Kimi-K2.5",
    "moonshotai-Kimi-K2.6",
    "tencent-DeepSeek-V3.1-Terminus-W4AFP8",
    "google-gemma-4-31B-it",
    "microsoft-Phi-4-reasoning",
    "HuggingFaceTB-SmolLM3-3B@3e0e27",
    "nvidia-NVIDIA-Nemotron-Nano-12B-v2",
}
"""The chat templates that write the reasoning of a last answer not at all, or only beside calls."""


NO_CALLS = {
    "HuggingFaceTB-SmolLM3-3B@3e0e27",  # refuses calls
    "nvidia-NVIDIA-Nemotron-Nano-12B-v2",  # leaves out the reasoning, so its call does not follow the prompt
}
"""The chat templates that have tools and do not write what their model writes in a call."""


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.tools != "none" and row.family != "DeepSeek-V3.1" and row.source not in NO_CALLS],
    ids=lambda row: row.source,
)
def test_a_call_and_the_reasoning_before_it_are_read_as_the_chat_template_writes_them(row: Row, tmp_path: Path) -> None:
    template, asked = row.template(tmp_path), row.asked(thinks=True)
    prompt = render(template, [ASKED], tools=[ADD], **asked).text
    whole = render(template, [ASKED, said(REASONING, CALL), RESULT], tools=[ADD], whole=True, **asked).text
    assert whole.startswith(prompt)
    found = parse_answer(template, whole.removeprefix(prompt), [ASKED], tools=[ADD], **asked)
    assert found.reasoning.strip() == ("" if row.thinking == "none" else REASONING)
    assert [call["function"]["name"] for call in found.tool_calls] == ["add"]
    assert json.loads(found.tool_calls[0]["function"]["arguments"]) == {"a": 12, "b": 34}
    assert (found.content, found.finish_reason) == ("", "tool_calls")


@of_switch
def test_with_reasoning_switched_off_an_answer_is_content(row: Row, tmp_path: Path) -> None:
    template, asked = row.template(tmp_path), row.asked(thinks=False)
    thinking = template.spec.thinking
    assert thinking is not None
    messages = [{"role": "user", "content": f"{'' if row.variable else '/no_think '}What is 12+34?"}]
    prompt = render(template, messages, **asked).text
    assert prompt != render(template, [ASKED], **row.asked(thinks=True)).text
    if row.variable:
        assert (render(template, messages).text == prompt) == ("off by default" in row.thinking)
    found = parse_answer(template, ANSWER, messages, **asked)
    assert (found.reasoning, found.content) == ("", ANSWER)


EARLIER = {  # the cell → of a finished answer, of a finished call, of a call without an answer
    "none": (False, False, False),
    "unfinished turn": (False, False, True),
    "with calls": (False, True, True),
    "all": (True, True, True),
}


@of_thinking
def test_the_chat_template_writes_the_earlier_reasoning_of_its_row(row: Row, tmp_path: Path) -> None:
    template = row.template(tmp_path)
    calls = [ASKED, said(REASONING, CALL), RESULT]
    found = [
        is_written(template, [ASKED, said(REASONING), ASKED], **row.asked(thinks=True)),
        is_written(template, [*calls, said("Done."), ASKED], tools=[ADD], **row.asked(thinks=True)),
        is_written(template, calls, tools=[ADD], **row.asked(thinks=True)),
    ]
    assert tuple(found) == EARLIER[row.earlier]


def is_written(template: Template, messages: Sequence[Mapping[str, Any]], **options: Any) -> bool:
    """Whether the reasoning is in the prompt. A chat template without tools or calls refuses the conversation."""
    try:
        return REASONING in render(template, messages, **options).text
    except InputError:
        return False


@pytest.mark.parametrize("name", sorted({preset.name for preset in PRESETS}))
def test_a_preset_leaves_earlier_reasoning_out_with_a_notice(name: str) -> None:
    prompt = render(load(name), [ASKED, said(REASONING), ASKED])
    assert REASONING not in prompt.text
    assert [notice.rule for notice in prompt.metadata.notices] == ["ignored_field"]
