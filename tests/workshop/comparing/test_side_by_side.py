"""``gateway render --as``: real engines, and what the report says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.workshop.comparing.parity_options import ENGINE_NAMES
from gateway.workshop.parity.engines import CHAT_TEMPLATE_ENGINES
from gateway.workshop.parity.transformers_reference import installed
from tests.cli.command import command
from tests.journeys.process import run
from tests.support.serving import ROOT, write_files

HERE = [name for name in CHAT_TEMPLATE_ENGINES if name != "transformers" or installed()]
"""The engines of the test environment. It has no transformers."""

CHAT = """\
{%- for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>\\n' }}{% endfor %}
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
JINJA = "kind: jinja\nfile: {}\nrequest_kwargs: [enable_thinking]\n"
META = """\
kind: meta
round:
  - {role: HUMAN, begin: "<|user|>", end: "<|end|>\\n"}
  - {role: BOT, begin: "<|assistant|>", end: "<|end|>\\n", generate: true}
reserved_roles:
  - {role: SYSTEM, begin: "<|system|>", end: "<|end|>\\n"}
"""
SERVED = 'targets: [{speaks: completions, url: "http://127.0.0.1:1/v1", engine: llamacpp, adds_bos: false}]'

FILES: dict[str, str | Path] = {
    "folder/chat_template.jinja": CHAT,
    "folder/tokenizer_config.json": '{"eos_token": "<|end|>"}',
    "meta_templates/mine.yaml": META,
    "meta_templates/chat.jinja": CHAT,
    "meta_templates/own.yaml": JINJA.format("chat.jinja") + "tools: {parser: hermes}\n",
    "meta_templates/marked.jinja": "{% generation %}{{ messages[0].content }}{% endgeneration %}",
    "meta_templates/marked.yaml": JINJA.format("marked.jinja"),
    "meta_templates/dated.jinja": "{{ strftime_now('%d %B %Y') }}: {{ messages[0].content }}",
    "meta_templates/dated.yaml": JINJA.format("dated.jinja"),
    "meta_templates/strict.jinja": "{{ raise_exception('only silence') }}",
    "meta_templates/strict.yaml": JINJA.format("strict.jinja"),
    "gateway.yaml": f"""\
models:
  mine: {{template: mine, {SERVED}, tokenizer: folder}}
  own: {{template: own, {SERVED}}}
  marked: {{template: marked, {SERVED}}}
  dated: {{template: dated, {SERVED}}}
  strict: {{template: strict, {SERVED}}}
  bare: {{template: mine, {SERVED}}}
""",
    "folder/tokenizer.json": ROOT / "demo" / "model" / "tokenizer.json",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("engines")
    write_files(place, FILES)
    return place


def shown(folder: Path, model: str, body: dict[str, Any], *options: str, engines: Sequence[str] = HERE) -> Any:
    """The exit code, and the prompt or the refusal of each engine and of the gateway."""
    arguments = ["render", model, "--as", ",".join(engines), "--json", *options]
    ended = command(folder, *arguments, stdin=json.dumps(body).encode())
    assert b"Traceback" not in ended.stderr
    report = json.loads(ended.stdout)
    texts = {case["name"].split()[0]: case["reference"]["text"] for case in report["cases"]}
    return ended.returncode, texts, report["cases"][0]["ours"]["text"]


def ask(text: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


TOOL = {"type": "function", "function": {"name": "add", "description": "<a> & b", "parameters": {"type": "object"}}}
TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I am"}]
ALIKE: dict[str, tuple[str, dict[str, Any], str]] = {
    # model, request, prompt
    "a chat template": ("own", ask(), "<|user|>hi<|end|>\n<|assistant|>"),
    "a meta template and the model's folder": ("mine", ask(), "<|user|>hi<|end|>\n<|assistant|>"),
    "a switch of thinking": (
        "own",
        ask(chat_template_kwargs={"enable_thinking": False}),
        "<|user|>hi<|end|>\n<think></think><|assistant|>",
    ),
    "a message that is continued": ("own", {"messages": TALK, "continue_final_message": True}, "<|assistant|>I am"),
    "tools": ("own", ask(tools=[TOOL]), "<a> & b"),
    "tools that are hidden": ("own", ask(tools=[TOOL], tool_choice="none"), "<|user|>hi<|end|>\n<|assistant|>"),
    "special text": ("own", ask("{{ x }} {% y %} é\u2028 <|end|>"), "<|user|>{{ x }} {% y %} é\u2028 <|end|><|end|>\n"),
}


@pytest.mark.parametrize(("model", "body", "words"), ALIKE.values(), ids=ALIKE)
def test_every_engine_makes_the_prompt_of_the_gateway(
    folder: Path, model: str, body: dict[str, Any], words: str
) -> None:
    code, texts, ours = shown(folder, model, body)
    assert (code, set(texts.values())) == (0, {ours})
    assert list(texts) == HERE
    assert words in ours


def test_the_whole_conversation_is_compared(folder: Path) -> None:
    code, texts, ours = shown(folder, "own", {"messages": TALK}, "--whole")
    assert (code, set(texts.values())) == (0, {ours})
    assert ours.endswith("<|assistant|>I am<|end|>\n")


@pytest.mark.parametrize(("engines", "year"), [(HERE, 2026), (["minijinja"], 2024)], ids=["with llama.cpp", "without"])
def test_all_engines_have_the_same_time(folder: Path, engines: Sequence[str], year: int) -> None:
    code, texts, ours = shown(folder, "dated", ask(), engines=engines)
    assert (code, set(texts.values())) == (0, {ours})
    assert ours.endswith(f" {year}: hi")


def test_an_engine_that_fails_and_the_first_difference_are_named(folder: Path) -> None:
    ended = command(folder, "render", "marked", "--as", "llama.cpp,minijinja", "-m", "user:hi")
    assert ended.returncode == 1
    out = ended.stdout.decode()
    assert re.search(r"^minijinja \d\S+ +refused by the reference$", out, re.MULTILINE)
    assert "by the reference: syntax error: unknown statement generation" in out
    (folder / "folder" / "chat_template.jinja").write_text(CHAT.replace("<|end|>", "</end>"), encoding="utf-8")
    ended = command(folder, "render", "mine", "--as", "llama.cpp", "-m", "user:hi")
    (folder / "folder" / "chat_template.jinja").write_text(CHAT, encoding="utf-8")
    out = ended.stdout.decode()
    assert ended.returncode == 1
    assert "+++ reference: llama.cpp b" in out
    assert "first difference: byte 11" in out
    assert "\n1 engine: 1 different. The prompts are not the same.\n" in out


def test_a_conversation_that_the_template_refuses_is_refused_by_all(folder: Path) -> None:
    ended = command(folder, "render", "strict", "--as", ",".join(HERE), "-m", "user:hi")
    out = ended.stdout.decode()
    assert out.count("refused by both") == len(HERE) + 1
    assert out.count("refuses the conversation: only silence\n") == 2  # by ours, and by the reference
    assert ended.returncode == 1


USAGE: dict[str, tuple[Sequence[str], int, str]] = {
    # arguments, exit code, part of standard error
    "no such engine": (["own", "--as", "jinja2"], 2, '--as: no engine "jinja2"; the engines are transformers, llama'),
    "no engine": (["own", "--as", ""], 2, '--as: no engine ""; the engines are'),
    "no chat template": (["bare", "--as", "minijinja"], 2, "(no tokenizer is set in gateway.yaml); --as needs kind:"),
    "segments": (["own", "--as", "minijinja", "--segments"], 2, "remove --segments and --prompt"),
}


@pytest.mark.parametrize(("arguments", "code", "words"), USAGE.values(), ids=USAGE)
def test_an_error_is_reported(folder: Path, arguments: Sequence[str], code: int, words: str) -> None:
    ended = command(folder, "render", *arguments, "-m", "user:hi")
    assert (ended.returncode, ended.stdout) == (code, b"")
    assert words in ended.stderr.decode()


@pytest.mark.parametrize(
    ("engine", "module"), [("transformers", "transformers"), ("llama.cpp", "ggufdoctor"), ("minijinja", "minijinja")]
)
def test_an_engine_that_is_not_installed_names_the_extra(
    folder: Path, tmp_path: Path, engine: str, module: str
) -> None:
    (tmp_path / f"{module}.py").write_text(f"raise ImportError('No module named {module}')")
    ended = run(folder, "render", "own", "--as", engine, "-m", "user:hi", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (ended.returncode, ended.stdout) == (2, b"")
    extra = "run: pip install 'meta-gateway[engines]'"
    assert ended.stderr.decode() == f"error: {engine} is not installed (No module named {module}); {extra}\n"


def test_parity_renders_the_whole_matrix_with_another_engine(folder: Path) -> None:
    for engine in HERE:
        ended = command(folder, "parity", "own", "--reference", "folder", "--engine", engine, "--json")
        report = json.loads(ended.stdout)
        assert report["engine"].startswith(engine)
        different = [case["name"] for case in report["cases"] if case["verdict"] not in ("same", "refused by both")]
        assert different == []
        assert report["counts"]["same"] > 40


def test_the_command_line_knows_every_engine() -> None:
    assert list(CHAT_TEMPLATE_ENGINES) == list(ENGINE_NAMES)
