"""The calls of ``metatemplate``, and its wheel beside its requirements alone."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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


def required(name: str) -> set[str]:
    """The names of a distribution's requirements, without extras, and of all that they require."""
    found = set()
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found |= {requirement.name, *required(requirement.name)}
    return found


def test_the_wheel_and_its_requirements_alone_render_the_examples_of_every_template(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT / "metatemplate", check=True, capture_output=True)
    (wheel,) = tmp_path.glob("metatemplate-*.whl")
    target = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
        (described,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        own = [Requirement(line) for line in message_from_bytes(archive.read(described)).get_all("Requires-Dist", [])]
    names = {one.name for one in own if one.marker is None}
    for name in names.union(*map(required, names)):
        for file in metadata.files(name) or ():
            top = file.parts[0]
            if ".." not in file.parts and not (target / top).exists():
                (target / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))
    code = f"import sys; sys.path.append({str(target)!r}); sys.argv = ['', {str(target)!r}]\n{PROGRAM}"
    command = [sys.executable, "-I", "-S", "-c", code]  # -S: without the packages of this environment
    ended = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) == len(list((ROOT / "meta_templates").glob("*.yaml")))
