"""The calls of ``metatemplate``, and its wheel in an environment of its own folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import metatemplate

ROOT = Path(__file__).resolve().parents[2]
USER = [{"role": "user", "content": "1+1=?"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
PROGRAM = """
import sys, metatemplate
assert metatemplate.__file__.startswith(sys.argv[1]), metatemplate.__file__
loaded = [metatemplate.load(file.stem) for file in metatemplate.presets().glob("*.yaml")]  # runs the examples
assert not [name for name in sys.modules if name.split(".")[0] == "gateway"]
print(len(loaded))
"""


def test_the_lines_of_the_page_run() -> None:
    (lines,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/metatemplate.md").read_text(encoding="utf-8"), re.DOTALL
    )
    exec(lines, {})


def test_a_conversation_becomes_the_exact_prompt() -> None:
    prompt = metatemplate.render(metatemplate.load("chatml"), USER)
    assert prompt.text == "<|im_start|>user\n1+1=?<|im_end|>\n<|im_start|>assistant\n"
    assert prompt.metadata.stops == ("<|im_end|>",)


def test_an_answer_is_cut_and_its_calls_are_parsed() -> None:
    written = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call><|im_end|>\nmore'
    answer = metatemplate.parse_answer(metatemplate.load("chatml-tools"), written, USER, tools=TOOLS)
    assert (answer.content, answer.finish_reason) == ("", "tool_calls")
    assert [call["function"] for call in answer.tool_calls] == [{"name": "add", "arguments": '{"a": 1}'}]


def test_a_text_is_cut_at_the_first_stop_and_differences_have_a_position() -> None:
    assert metatemplate.cut("a</s>b", ["</s>"]) == "a"
    assert metatemplate.diff("abc", "abc") == ""
    assert metatemplate.diff("abc", "abd") == "position 2: expected 'c', found 'd'"


def test_a_wrong_name_and_a_wrong_message_are_refused() -> None:
    with pytest.raises(metatemplate.InvalidFile, match="no template"):
        metatemplate.load("no-such-template")
    with pytest.raises(metatemplate.InputError) as raised:
        metatemplate.render(metatemplate.load("chatml"), [{"content": "hi"}])
    assert raised.value.param == "messages[0]"


def test_the_wheel_renders_the_examples_of_every_shipped_template(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT / "metatemplate", check=True, capture_output=True)
    (wheel,) = tmp_path.glob("metatemplate-*.whl")
    target = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    code = f"import sys; sys.path.insert(0, {str(target)!r}); sys.argv = ['', {str(target)!r}]\n{PROGRAM}"
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert int(ended.stdout) == len(list((ROOT / "meta_templates").glob("*.yaml")))
