"""A call of another format in an answer is found; ordinary answers to requests with tools contain none."""

from __future__ import annotations

import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from metatemplate.answers.output_parser import OutputParser, ParserOptions
from metatemplate.answers.tool_calls.registry import FIXED, unread_calls
from metatemplate.values.events import Delta, Finish
from tests.metatemplate.answers.test_tool_calls import CALL, NAMES, PARAMETERS, C, D, G, H, K, M, Q
from tests.support.growth import assert_linear

WRITTEN = {
    "hermes": H,
    "llama3_json": f"<|python_tag|>{PARAMETERS}",
    "mistral": '[TOOL_CALLS]add[ARGS]{"a": 1}',
    "nemotron_json": f"<TOOLCALL>[{CALL}]</TOOLCALL>",
    "kimi_k2": f"<|tool_calls_section_begin|>{K}<|tool_calls_section_end|>",
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n"
    '```json\n{"a": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek_v31": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>"
    '{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek_v32": f"<｜DSML｜function_calls>\n{D}</｜DSML｜function_calls>",
    "deepseek_v4": f"<｜DSML｜tool_calls>\n{D}</｜DSML｜tool_calls>",
    "qwen3_coder": Q,
    "glm45": G,
    "minimax_m2": M,
    "gemma4": "<|tool_call>call:add{a:1}<tool_call|>",
    "functiongemma": "<start_function_call>call:add{a:1}<end_function_call>",
    "harmony": C,
}
"""Format → a call of ``add``."""
DSML = {"deepseek_v32", "deepseek_v4"}
"""Formats that read each other's calls: only the outer tags differ."""
PAIRS = [(own, other) for own in WRITTEN for other in WRITTEN if own != other and {own, other} != DSML]


def test_every_format_with_a_sign_is_written_here() -> None:
    assert {name for name, one in FIXED.items() if one.sign} == set(WRITTEN)


@pytest.mark.parametrize("own", WRITTEN)
def test_a_call_of_its_own_format_is_read(own: str) -> None:
    assert answered(own, f"So.\n{WRITTEN[own]}") == ([], {})


@pytest.mark.parametrize(("own", "other"), PAIRS)
def test_a_call_of_another_format_is_noticed(own: str, other: str) -> None:
    notices, failures = answered(own, f"So.\n{WRITTEN[other]}")
    assert notices == [f"tool_call_not_read: choices[0]={other}"]
    assert failures[other] == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("<function=add>\n<parameter=a>\n1\n</parameter>\n</function>", ("qwen3_coder",)),
        (K, ("kimi_k2",)),
        ('<｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1}', ("deepseek_v31",)),
        (D, tuple(sorted(DSML))),
        ('<invoke name="add"><parameter name="a">1</parameter></invoke>', ()),
        ("<tool_call>now</tool_call>", ()),
    ],
)
def test_a_call_without_its_outer_tag_is_found_unless_it_may_be_xml(text: str, names: tuple[str, ...]) -> None:
    assert unread_calls(text) == names


def answered(own: str, text: str) -> tuple[list[str], dict[str, int]]:
    """The notices of an answer, and its failures by format. ``own``: the format of the template."""
    notices: list[str] = []
    parser = OutputParser(ParserOptions(calls=FIXED[own], tools=NAMES), notices)
    parser.flush([Delta(0, text), Finish(0, "stop")])
    return notices, dict(parser.failures)


def test_the_search_is_linear() -> None:
    for again in (
        f"`{H}`",
        f"```\n{H}\n```\n",
        "<tool_call>",
        "`",
        "```\n",
        "[TOOL_CALLS]a" + " " * 40,
        "to=functions.",
    ):
        assert_linear(lambda size, again=again: unread_calls(again * (size // len(again))), 20_000)  # type: ignore[misc]


# ---------------------------------------------------------------- ordinary answers

ANSWERS = 2000
DOCS = Path(__file__).parents[3] / "docs"
TAGS = ("tool_call", "function", "invoke", "parameter", "answer", "item", "name", "TOOLCALL")
SENTENCES = (
    "The tag <tool_call> begins a call.",
    "Between <tool_call> and </tool_call> stands the call.",
    "Write <function=NAME> and <parameter=KEY>.",
    "The marker [TOOL_CALLS] comes first, then a list.",
    '`<tool_call>{"name": "add"}</tool_call>` is Hermes\' form.',
    "A message ends with <|end|>, and its channel stands behind <|channel|>.",
    'In XML: <invoke name="add"/>.',
    'Call add(a=1, b=2) and look at the result: {"a": 1}.',
    "It is 46.",
)


def ordinary() -> Iterator[str]:
    """Prose about tool calls, XML, JSON, code and Markdown."""
    rng = random.Random(37)
    code = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    pages = [path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))]

    def element(depth: int) -> ElementTree.Element:
        made = ElementTree.Element(rng.choice(TAGS), {"name": rng.choice(TAGS)} if rng.random() < 0.5 else {})
        made.text = rng.choice(["add", "12", "x < y", "", '{"a": 1}', "\n"])
        made.extend([element(depth - 1) for _ in range(rng.randint(0, 3 if depth else 0))])
        return made

    def value(depth: int) -> object:
        if not depth or rng.random() < 0.3:
            return rng.choice([1, "add", None, True, "</tool_call>", "<function=add>"])
        return {rng.choice([*TAGS, "arguments"]): value(depth - 1) for _ in range(3)}

    while True:
        yield " ".join(rng.choices(SENTENCES, k=rng.randint(1, 8)))
        yield ElementTree.tostring(element(3), encoding="unicode")
        yield json.dumps(value(3), indent=rng.choice([None, 2]))
        lines = rng.choice(code).read_text(encoding="utf-8", errors="replace").splitlines()
        start = rng.randrange(max(1, len(lines) - 60))
        yield "\n".join(lines[start : start + 60])
        yield f"```xml\n{H}\n{Q}\n{M}\n```\n{rng.choice(pages)[:4000].partition('```')[0]}"


def test_ordinary_answers_have_no_notice() -> None:
    found = {}
    for number, text in zip(range(ANSWERS), ordinary(), strict=False):
        if names := unread_calls(text):
            found[number, names] = text
    assert found == {}
