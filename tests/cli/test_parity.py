"""``gateway parity``: reports, exit codes and messages. Whole reports are files in ``tests/golden/parity``.

Most tests use the gateway's renderer (``--engine own``), so the reports do not depend on installed packages;
``tests/metatemplate/chat_templates/test_by_transformers.py`` tests the other one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.workshop.parity.cases import matrix
from gateway.workshop.parity.transformers_reference import installed
from tests.cli.command import command
from tests.journeys.process import run
from tests.support.serving import ROOT, write_files

GOLDEN = ROOT / "tests" / "golden" / "parity"

CHAT = """\
{{- bos_token -}}
{%- if messages[0].role != 'system' -%}{{ '<|system|>You are helpful.<|end|>\\n' }}{%- endif -%}
{%- for m in messages -%}
{{ '<|' + m.role + '|>' + (m.content | trim) + '<|end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}
"""
ROUND = """\
kind: meta
round:
  - {role: HUMAN, begin: "<|user|>", end: "<|end|>\\n"}
  - {role: BOT, begin: "<|assistant|>", end: "<|end|>\\n", generate: true}
reserved_roles:
  - {role: SYSTEM, begin: "<|system|>", end: "<|end|>\\n"}
"""
SERVED = 'targets: [{speaks: completions, url: "http://127.0.0.1:1/v1", engine: vllm}]'

FILES: dict[str, str] = {
    "meta_templates/mine.yaml": ROUND + 'begin: "<s>"\nbos: text\nbos_text: "<s>"\n',
    "meta_templates/engine.yaml": ROUND + "bos: engine\n",
    "meta_templates/bare.yaml": ROUND,
    "draft.yaml": ROUND.replace("<|user|>", "<|human|>"),
    "broken.yaml": "kind: meta\nround: 5\n",
    "hugging/chat_template.jinja": CHAT,
    "hugging/tokenizer_config.json": '{"bos_token": "<s>", "eos_token": "<|end|>"}',
    "plain/tokenizer_config.json": json.dumps(
        {
            "bos_token": "<s>",
            "chat_template": "{{ bos_token }}{% for m in messages %}"
            "{{ '<|' + m.role + '|>' + m.content + '<|end|>\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
        }
    ),
    "wrong.json": "{}",
    "refusing.jinja": "{{ raise_exception('nothing is good enough') }}",
    "escape.jinja": "\x1b[31m{{ messages[0].content }}",
    "dated.jinja": "{{ strftime_now('%Y') }}{{ messages[0].content }}",
    "thinking.jinja": "{% if deep %}<think>{% endif %}{{ messages[0].content }}",
    "gateway.yaml": f"""\
models:
  mine: {{template: mine, {SERVED}, tokenizer: plain}}
  other: {{template: mine, {SERVED}, tokenizer: hugging}}
  engine: {{template: engine, {SERVED}, tokenizer: plain}}
  habit: {{template: bare, {SERVED}, tokenizer: plain}}
  deaf: {{template: engine, tokenizer: plain, {SERVED.replace("vllm", "llamacpp, adds_bos: false")}}}
  bare: {{template: bare, {SERVED}}}
  empty: {{template: bare, {SERVED}, tokenizer: tokens}}
  talk:
    template: chat
    targets: [{{speaks: chat, url: "http://127.0.0.1:1/v1"}}]
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("parity")
    tokenizer = ROOT / "demo" / "model" / "tokenizer.json"
    write_files(place, {**FILES, **{f"{name}/tokenizer.json": tokenizer for name in ("plain", "hugging", "tokens")}})
    return place


def parity(folder: Path, *arguments: str, **env: Any) -> tuple[int, str, str]:
    ended = command(folder, "parity", *arguments, **env)
    assert b"Traceback" not in ended.stderr, ended.stderr.decode()
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


REPORTS: dict[str, tuple[Sequence[str], int]] = {
    # golden file: arguments, exit code
    "same": (["mine", "--engine", "own"], 0),
    "other": (["other", "--engine", "own"], 1),
    "templates": (["--template", "draft.yaml", "--reference", "engine", "--show", "1"], 1),
    "refused": (["--template", "bare", "--reference", "refusing.jinja", "--engine", "own"], 1),
}


@pytest.mark.parametrize(("name", "arguments", "code"), [(n, *r) for n, r in REPORTS.items()], ids=REPORTS)
def test_a_report_is_the_one_on_file(folder: Path, name: str, arguments: Sequence[str], code: int) -> None:
    got = parity(folder, *arguments)
    known = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    assert re.sub(r"sha256:[0-9a-f]{12}", "sha256:…", got[1]) == known
    assert (got[0], got[2]) == (code, "")


USAGE: dict[str, tuple[Sequence[str], int, str]] = {
    # arguments, exit code, part of standard error
    "neither": ([], 2, "give either MODEL or --template\n"),
    "both": (["mine", "--template", "mine"], 2, "give either MODEL or --template\n"),
    "no such model": (["mien"], 2, 'no model "mien" in the configuration (did you mean "mine"?)\n'),
    "no such template": (["--template", "chatlm", "--reference", "plain"], 3, 'did you mean "chatml"?'),
    "a broken template": (["--template", "broken.yaml", "--reference", "plain"], 3, "broken.yaml:2 round"),
    "no configuration": (["mine", "--config", "nowhere.yaml"], 3, "nowhere.yaml"),
    "no reference for a model": (
        ["bare"],
        2,
        "bare has no chat template to compare with (no tokenizer is set in gateway.yaml); give --reference FILE",
    ),
    "a tokenizer without a template": (["empty"], 2, "(tokens does not contain chat_template.jinja or"),
    "no reference for a template": (["--template", "mine"], 2, "give --reference FILE, FOLDER, URL or TEMPLATE\n"),
    "no such reference": (["mine", "--reference", "nowhere.jinja"], 2, "nowhere.jinja: no such file or folder\n"),
    "no such folder": (["mine", "--reference", "./nowhere"], 2, "./nowhere: no such file or folder\n"),
    "no such name": (["mine", "--reference", "chatlm"], 3, 'did you mean "chatml"?'),
    "a folder without a template": (["mine", "--reference", "tokens"], 2, "tokens has no chat template; it must"),
    "a file without a template": (["mine", "--reference", "wrong.json"], 3, "wrong.json has no key chat_template"),
    "a template that makes messages": (["talk", "--reference", "plain"], 2, "chat makes messages, so there is no text"),
    "a reference that makes messages": (["mine", "--reference", "api"], 2, "api makes messages, so there is no text"),
    "no such tokenizer": (["mine", "--tokenizer", "nowhere.json"], 3, "nowhere.json"),
    "variables that are no JSON": (["mine", "--kwargs", "{"], 2, "'--kwargs': expected a JSON object"),
    "variables that are no object": (["mine", "--kwargs", "[1]"], 2, "'--kwargs': expected a JSON object"),
    "variables for a template of ours": (
        ["mine", "--reference", "engine", "--kwargs", '{"a": 1}'],
        2,
        "--kwargs applies only to a chat template",
    ),
    "an engine for a template of ours": (
        ["mine", "--reference", "engine", "--engine", "own"],
        2,
        "--engine applies only to a chat template",
    ),
    "no such case": (["mine", "--case", "one trun"], 2, 'no case "one trun"; the known cases are one turn, two turns'),
    "a number below zero": (["mine", "--show", "-1"], 2, "'--show': -1 is not in the range x>=0"),
    "no such engine": (["mine", "--engine", "jinja"], 2, "'jinja' is not one of"),
}


@pytest.mark.parametrize(("arguments", "code", "words"), USAGE.values(), ids=USAGE)
def test_an_error_is_reported(folder: Path, arguments: Sequence[str], code: int, words: str) -> None:
    got = parity(folder, *arguments)
    assert (got[0], got[1]) == (code, "")
    assert words in got[2]


def report(folder: Path, *arguments: str) -> dict[str, Any]:
    _, out, err = parity(folder, *arguments, "--json")
    assert err == ""
    parsed: dict[str, Any] = json.loads(out)
    return parsed


def test_json_holds_everything(folder: Path) -> None:
    shown = report(folder, "other", "--engine", "own")
    assert [case["name"] for case in shown["cases"]] == [case.name for case in matrix()]
    assert not shown["agrees"]
    assert sum(shown["counts"].values()) == len(shown["cases"])
    assert set(shown["causes"]) == {name for case in shown["cases"] for name in case["causes"]}
    one = shown["cases"][0]
    assert one["messages"] == [{"role": "user", "content": "What is 1+1?"}]
    assert (one["verdict"], one["at"], one["causes"]) == ("differs", len("<s><|"), ["default_system"])
    assert one["ours"] == {"text": "<s><|user|>What is 1+1?<|end|>\n<|assistant|>", "refused": "", "code": ""}
    assert one["reference"]["text"] == (
        "<s><|system|>You are helpful.<|end|>\n<|user|>What is 1+1?<|end|>\n<|assistant|>"
    )
    assert one["tokens"]["at"] is not None


def test_one_case_can_be_asked_for(folder: Path) -> None:
    shown = report(folder, "other", "--engine", "own", "--case", "two turns", "--case", "one turn")
    assert [case["name"] for case in shown["cases"]] == ["two turns", "one turn"]


BOS: dict[str, tuple[Sequence[str], str, int]] = {
    # arguments, the phrase on ours, exit code
    "in the text": (["mine"], '"<s>"; ours: in its text; ', 0),
    "by the engine": (["engine"], '"<s>"; ours: added by the engine (bos: engine); ', 0),
    "by the engine, by default": (["habit"], '"<s>"; ours: left to the engine (bos: none), which adds one; ', 0),
    "by an engine that adds none": (
        ["deaf"],
        '"<s>"; ours: expected from the engine (bos: engine), which adds none; ',
        1,
    ),
    "by an unknown engine": (
        ["--template", "bare", "--reference", "plain"],
        '"<s>"; ours: left to the engine (bos: none); the comparison assumes that the engine adds none; ',
        1,
    ),
}


@pytest.mark.parametrize(("arguments", "words", "code"), BOS.values(), ids=BOS)
def test_the_report_names_what_writes_the_bos(folder: Path, arguments: Sequence[str], words: str, code: int) -> None:
    got = parity(folder, *arguments, "--engine", "own")
    assert f"BOS        {words}reference: only as written in its text\n" in got[1]
    assert got[0] == code
    assert ("missing_bos (" in got[1]) == (code == 1)


def test_variables_reach_the_reference(folder: Path) -> None:
    asked = ("--template", "bare", "--reference", "thinking.jinja", "--engine", "own", "--case", "one turn")
    assert report(folder, *asked)["cases"][0]["reference"]["text"] == "What is 1+1?"
    shown = report(folder, *asked, "--kwargs", '{"deep": true}')
    assert shown["cases"][0]["reference"]["text"] == "<think>What is 1+1?"


def test_the_day_does_not_change_a_report(folder: Path) -> None:
    shown = report(folder, "--template", "bare", "--reference", "dated.jinja", "--case", "one turn")
    assert shown["cases"][0]["reference"]["text"] == "2024What is 1+1?"


def test_without_a_tokenizer_bytes_are_compared(folder: Path) -> None:
    _, out, _ = parity(folder, "--template", "bare", "--reference", "thinking.jinja", "--engine", "own", "--show", "0")
    assert "tokens     no tokenizer, so only bytes are compared; give one with --tokenizer\n" in out
    assert "first different token" not in out
    _, out, _ = parity(
        folder, "--template", "bare", "--reference", "thinking.jinja", "--engine", "own", "--tokenizer", "tokens"
    )
    assert "tokens     tokens\n" in out
    assert "first different token" in out


def test_all_differences_or_none_are_shown(folder: Path) -> None:
    differ = report(folder, "other", "--engine", "own")["counts"]["differs"]
    for arguments, shown in ((["--all"], differ), (["--show", "2"], 2), (["--show", "0"], 0)):
        _, out, _ = parity(folder, "other", "--engine", "own", *arguments)
        assert len(re.findall("^--- ours: ", out, re.MULTILINE)) == shown
        assert ("use --all to show all" in out) == (shown < differ)


def on_a_terminal(folder: Path, *arguments: str, **env: Any) -> bytes:
    """Standard output, if it is a terminal."""
    return command(folder, "parity", *arguments, terminal=True, **env).stdout


def test_there_are_colours_on_a_terminal_unless_unwanted(folder: Path) -> None:
    asked = ("other", "--engine", "own", "--case", "one turn")
    coloured = on_a_terminal(folder, *asked, NO_COLOR="")
    assert b"\x1b[31m" in coloured
    assert b"\x1b[32m" in coloured
    assert b"\x1b" not in on_a_terminal(folder, *asked, "--no-color", NO_COLOR="")
    assert b"\x1b" not in on_a_terminal(folder, *asked, NO_COLOR="1")
    assert "\x1b" not in parity(folder, *asked)[1]


def test_a_hostile_reference_does_nothing_to_a_terminal(folder: Path) -> None:
    said = on_a_terminal(folder, "--template", "bare", "--reference", "escape.jinja", "--engine", "own", "--no-color")
    assert b"\x1b" not in said
    assert b"\\x1b[31m" in said


def test_the_demo_template_equals_its_chat_template() -> None:
    ended = run(ROOT, "parity", "demo", "--engine", "own")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.endswith(b"The model receives the same prompt from both.\n")


@pytest.mark.skipif(not installed(), reason="transformers is not installed here; --engine own is what all others test")
def test_transformers_renders_the_reference_where_it_is_installed(folder: Path) -> None:
    code, out, err = parity(folder, "mine")
    assert (code, err) == (0, "")
    assert f"engine     transformers {installed()}\n" in out
    shown = report(folder, "--template", "bare", "--reference", "dated.jinja", "--case", "one turn")
    assert shown["engine"] == f"transformers {installed()}"
    assert shown["cases"][0]["reference"]["text"] == "2024What is 1+1?"


NAMED_TEMPLATES = {
    "names/chat_template.jinja": "{% for m in messages %}[{{ m.content }}]{% endfor %}",
    "names/additional_chat_templates/rag.jinja": "rag{% for m in messages %}[{{ m.content }}]{% endfor %}",
    "names/tokenizer_config.json": '{"bos_token": "<s>", "chat_template": "another"}',
    "names/special_tokens_map.json": '{"bos_token": "<m>"}',
    "rag.yaml": "kind: jinja\nfile: names/chat_template.jinja\nvariant: rag\n",
    "default.yaml": "kind: jinja\nfile: names/chat_template.jinja\n",
}
VARIANTS: dict[str, tuple[Sequence[str], int, str]] = {
    # arguments, exit code, the reference as the report names it
    "the default of both": (["--template", "default.yaml"], 0, "names/chat_template.jinja (sha256:"),
    "the same as ours": (["--template", "rag.yaml"], 0, "names/chat_template.jinja, template rag (sha256:"),
    "another than ours": (
        ["--template", "default.yaml", "--variant", "rag"],
        1,
        "names/chat_template.jinja, template rag (sha256:",
    ),
    "the default, as asked": (
        ["--template", "rag.yaml", "--variant", "default"],
        1,
        "names/chat_template.jinja (sha256:",
    ),
}


@pytest.mark.parametrize(("arguments", "code", "reference"), VARIANTS.values(), ids=VARIANTS)
def test_one_of_several_named_templates_is_compared_and_named(
    tmp_path: Path, arguments: Sequence[str], code: int, reference: str
) -> None:
    write_files(tmp_path, NAMED_TEMPLATES)
    words = [*arguments, "--reference", "names", "--engine", "own"]
    ended, out, _ = parity(tmp_path, *words)
    assert ended == code
    assert f"reference  {reference}" in out
    for side in ("ours", "reference"):
        assert f"note       {side}: tokenizer_config.json and chat_template.jinja have different chat templates" in out
        assert f"note       {side}: bos_token is '<s>' in tokenizer_config.json and '<m>' in special_tokens_map" in out
    notes = json.loads(parity(tmp_path, *words, "--json")[1])["notes"]
    assert all(f"note       {note}\n" in out for note in notes)
    assert len(notes) >= 4


def test_an_empty_variant_is_refused_as_import_refuses_it(tmp_path: Path) -> None:
    write_files(tmp_path, NAMED_TEMPLATES)
    ended, _, said = parity(tmp_path, "--template", "rag.yaml", "--reference", "names", "--variant", "")
    assert (ended, "variant: is empty" in said) == (3, True)
    ended, _, said = parity(tmp_path, "--template", "rag.yaml", "--reference", "default.yaml", "--variant", "")
    assert (ended, "--variant applies only to a chat template" in said) == (2, True)
