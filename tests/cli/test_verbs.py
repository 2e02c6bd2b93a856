"""The verbs, byte for byte and with their exit codes. Locales, pipes and raw arguments need a process."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.command import command, on_a_full_disk
from tests.journeys.process import environment, run
from tests.support.serving import ROOT, write_files

TEMPLATE = """\
kind: meta
begin: "<s>"
round:
  - {role: HUMAN, begin: "H: ", end: "\\n"}
  - {role: BOT, begin: "B: ", end: "</s>\\n", generate: true}
reserved_roles:
  - {role: SYSTEM, begin: "S: ", end: "\\n"}
bos: text
bos_text: "<s>"
"""

FOLD = """\
round:
  - {role: HUMAN, begin: "H: ", end: "\\n"}
  - {role: BOT, begin: "B: ", end: "</s>\\n", generate: true}
"""
OTHER = TEMPLATE.replace('"H: "', '"U: "')

CONFIG = """\
models:
  mine:
    template: mine
    targets: [{speaks: completions, url: "http://127.0.0.1:1/v1", model: big-7b}]
  same:
    template: mine
    targets: [{speaks: completions, url: "http://127.0.0.1:1/v1"}]
  talk:
    template: chat
    policy: eval
    targets: [{speaks: scripted, script: hello.yaml}]
"""

HELLO = "[Hello, {finish: stop}]\n"

PROMPTS = {
    "sums.yaml": """\
input_columns: [question]
prompt_template: {template: {round: [{role: HUMAN, prompt: "{question}"}, {role: BOT, prompt: ""}]}}
""",
    "choice.yaml": """\
input_columns: [question]
prompt_template:
  template:
    A: {round: [{role: HUMAN, prompt: "{question}"}, {role: BOT, prompt: "yes"}]}
    B: {round: [{role: HUMAN, prompt: "{question}"}, {role: BOT, prompt: "no"}]}
""",
    "dialogue.yaml": """\
input_columns: [question]
output_column: answer
multi_turn: true
prompt_template:
  template: {round: [{role: HUMAN, prompt: "{question}"}, {role: BOT, prompt: "{answer}"}]}
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("verbs")
    files = {"draft.yaml": OTHER, "fold.yaml": FOLD, "hello.yaml": HELLO, "gateway.yaml": CONFIG}
    files |= {"meta_templates/mine.yaml": TEMPLATE, "broken.yaml": "kind: meta\nround: 5\n"}
    write_files(place, files | {f"prompts/{name}": text for name, text in PROMPTS.items()})
    return place


Case = tuple[Sequence[str], bytes, int, bytes, bytes]
"""Arguments, standard input, exit code, standard output, part of standard error."""

USER = b'[{"role": "user", "content": "1+1=?"}]'
PROMPT = b"<s>H: 1+1=?\nB: "

RENDER: dict[str, Case] = {
    "a model": (["mine", "-m", "user:1+1=?"], b"", 0, PROMPT, b""),
    "several messages": (
        ["mine", "-m", "system:Be brief", "-m", "user:hi", "-m", "assistant:ho", "-m", "user:a:b"], b"", 0,
        b"<s>S: Be brief\nH: hi\nB: ho</s>\nH: a:b\nB: ", b"",
    ),
    "messages on standard input": (["mine"], USER, 0, PROMPT, b""),
    "a request on standard input": (["mine"], b'{"model": "x", "messages": ' + USER + b"}", 0, PROMPT, b""),
    "a template file": (["--template", "draft.yaml"], USER, 0, b"<s>U: 1+1=?\nB: ", b""),
    "a template file by its path": (["--template", "./draft.yaml"], USER, 0, b"<s>U: 1+1=?\nB: ", b""),
    "a template beside the configuration": (["--template", "mine"], USER, 0, PROMPT, b""),
    "a shipped template": (
        ["--template", "chatml", "-m", "user:hi"], b"", 0,
        b"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", b"",
    ),
    "letters beyond ASCII": (["mine", "-m", "user:ü 你好 \U0001f600"], b"", 0,
                             "<s>H: ü 你好 \U0001f600\nB: ".encode(), b""),
    "odd characters": (["mine"], b'[{"role": "user", "content": "a\\r\\u0000\\u2028"}]', 0,
                       "<s>H: a\r\0\u2028\nB: ".encode(), b""),
    "segments": (
        ["mine", "-m", "user:a\tb ", "--segments"], b"", 0,
        b"template       template            <s>\n"
        b"messages[0]    template HUMAN      H:\xc2\xb7\n"
        b"messages[0]    content  HUMAN      a\\tb\xc2\xb7\n"
        b"messages[0]    template HUMAN      \\n\n"
        b"generate       template BOT        B:\xc2\xb7\n", b"",
    ),
    "a model that takes messages": (
        ["talk", "-m", "user:hi"], b"", 0, b'[\n  {\n    "role": "user",\n    "content": "hi"\n  }\n]\n', b"",
    ),
    "a dataset prompt": (["mine", "--prompt", "sums", "--var", "question=1+1=?"], b"", 0, PROMPT, b""),
    "a row of the dataset": (["mine", "--prompt", "sums"], b'{"question": "1+1=?"}', 0, PROMPT, b""),
    "a dataset prompt with a template": (
        ["--template", "draft.yaml", "--prompt", "sums", "--var", "question=a"], b"", 0, b"<s>U: a\nB: ", b"",
    ),
    "a dataset prompt as messages": (
        ["talk", "--prompt", "sums", "--var", "question=a"], b"", 0,
        b'[\n  {\n    "role": "user",\n    "content": "a"\n  }\n]\n', b"",
    ),
    "no such prompt": (["mine", "--prompt", "sum"], b"{}", 1, b"", b'in prompts/ (did you mean "sums"?)'),
    "a prompt without its variable": (["mine", "--prompt", "sums"], b"{}", 1, b"", b"the request lacks question"),
    "a prompt with labels": (["mine", "--prompt", "choice"], b'{"question": "a"}', 2, b"", b"gateway render --json\n"),
    "a prompt with turns": (
        ["mine", "--prompt", "dialogue"], b'{"question": ["a"], "answer": ["b"]}', 2, b"",
        b"the request has several prompts, one for each turn or label; show them with gateway render --json\n",
    ),
    "a prompt as a complete conversation": (
        ["mine", "--prompt", "sums", "--var", "question=a", "--whole"], b"", 2, b"", b"--whole needs messages",
    ),
    "a prompt and messages": (["mine", "--prompt", "sums", "-m", "user:a"], b"", 2, b"", b"-m and --prompt cannot"),
    "a variable without a prompt": (["mine", "--var", "a=b"], b"", 2, b"", b"--var needs a dataset prompt"),
    "a variable without its text": (["mine", "--var", "a"], b"", 2, b"", b"expected NAME=TEXT"),
    "variables that are a list": (["mine", "--prompt", "sums"], b"[]", 1, b"", b"must contain a JSON object"),
    "a notice about a message": (
        ["--template", "fold.yaml", "-m", "system:s"], b"", 0,
        b"H: s\nB: ", b"note: fold: fallback_role: messages[0]: SYSTEM written as HUMAN\n",
    ),
    "a notice about a parameter of the request": (
        ["mine"], b'{"messages": ' + USER + b', "max_completion_tokens": 5}', 0, PROMPT,
        b"note: mine: renamed_parameter: max_completion_tokens sent as max_tokens\n",
    ),
    "no notice about other parameters": (
        ["same"], b'{"messages": ' + USER + b', "temperature": 1}', 0, PROMPT, b"",
    ),
    "no such model": (["main"], USER, 2, b"", b'no model "main" in the configuration (did you mean "mine"?)\n'),
    "no such template file": (["--template", "nowhere.yaml"], USER, 2, b"", b"nowhere.yaml: no such file\n"),
    "no such template": (["--template", "chatlm"], USER, 3, b"", b'did you mean "chatml"?'),
    "a broken template file": (["--template", "broken.yaml"], USER, 3, b"", b"broken.yaml:2 round"),
    "neither": ([], USER, 2, b"", b"error: give either MODEL or --template\nhelp: gateway render --help\n"),
    "both": (["mine", "--template", "mine"], USER, 2, b"", b"error: give either MODEL or --template\n"),
    "no configuration": (["mine", "--config", "x.yaml", "-m", "user:a"], b"", 3, b"", b"x.yaml"),
    "-m without a colon": (["mine", "-m", "hello"], b"", 2, b"", b'ROLE:TEXT, such as user:hello, not "hello"\n'),
    "-m without a role": (["mine", "-m", ":hello"], b"", 2, b"", b"expected ROLE:TEXT"),
    "-m without a value": (["mine", "-m"], b"", 2, b"", b"option '-m' requires an argument"),
    "-m with an unknown role": (["mine", "-m", "emperor:hello"], b"", 1, b"", b"role_not_supported: messages[0].role"),
    "nothing on standard input": (["mine"], b"", 1, b"", b"standard input is empty; write JSON"),
    "no JSON": (["mine"], b"{", 1, b"", b"standard input is not JSON ("),
    "no UTF-8": (["mine"], b'["\xff"]', 1, b"", b"standard input is not JSON ("),
    "a lone surrogate": (["mine"], b'["\\ud800"]', 1, b"", b"standard input is not JSON ("),
    "a number": (["mine"], b"5", 1, b"", b"standard input must contain a JSON list of messages, or a chat request\n"),
    "an empty list": (["mine"], b"[]", 1, b"", b"invalid_value: messages"),
    "a bad message": (["mine"], b'[{"role": "user"}]', 1, b"", b"invalid_value: messages[0].content is missing"),
    "a forbidden field": (["mine"], b'{"messages": ' + USER + b', "api_base": "x"}', 1, b"", b"forbidden_parameter: "),
}  # fmt: skip


def expect(ended: subprocess.CompletedProcess[bytes], code: int, out: bytes, err: bytes) -> None:
    assert b"Traceback" not in ended.stderr, ended.stderr.decode()
    assert (ended.returncode, ended.stdout) == (code, out), ended.stderr.decode()
    assert err in ended.stderr if err else ended.stderr == b""


@pytest.mark.parametrize(("arguments", "stdin", "code", "out", "err"), RENDER.values(), ids=RENDER)
def test_render(folder: Path, arguments: Sequence[str], stdin: bytes, code: int, out: bytes, err: bytes) -> None:
    expect(command(folder, "render", *arguments, stdin=stdin), code, out, err)


def test_render_json_shows_every_turn_of_a_dataset_prompt(folder: Path) -> None:
    row = b'{"question": ["1+1=?", "2+2=?"], "answer": ["2", "4"]}'
    shown = json.loads(command(folder, "render", "mine", "--prompt", "dialogue", "--json", stdin=row).stdout)
    assert [turn["prompt"] for turn in shown["turns"]] == [
        PROMPT.decode(),
        f"{PROMPT.decode()}2</s>\nH: 2+2=?\nB: ",
    ]


def test_render_shows_the_content_of_a_media_file(tmp_path: Path) -> None:
    files = {
        "gateway.yaml": 'models: {m: {template: chat, targets: [{speaks: chat, url: "http://127.0.0.1:9/v1"}]}}',
        "policies/default.yaml": "media: {file: inline, folders: [images]}",
        "images/a.png": "A",
    }
    write_files(tmp_path, files)
    content = [{"type": "image_url", "image_url": {"url": "file://a.png"}}]
    ended = command(tmp_path, "render", "m", stdin=json.dumps([{"role": "user", "content": content}]).encode())
    (message,) = json.loads(ended.stdout)
    assert message["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}]


def test_render_json_is_the_result_of_v1_render(folder: Path) -> None:
    body = b'{"messages": ' + USER + b', "temperature": 0.5, "stop": "x", "n": 2}'
    ended = command(folder, "render", "mine", "--json", stdin=body)
    shown = json.loads(ended.stdout)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert shown["prompt"] == PROMPT.decode()
    assert shown["prompt_sha256"] == hashlib.sha256(PROMPT).hexdigest()
    assert (shown["model"], shown["policy"], shown["n"], shown["bos"]) == ("mine", "default", 2, "text")
    assert re.fullmatch(r"mine@sha256:[0-9a-f]{12}", shown["template"])
    assert shown["stop"] == ["</s>", "x"]
    assert shown["params"] == {"temperature": 0.5, "max_tokens": 2048}
    assert shown["notices"] == ["default_parameter: max_tokens=2048"]
    assert "".join(segment["text"] for segment in shown["segments"]) == PROMPT.decode()


@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_a_prompt_is_utf8_in_every_locale(folder: Path, locale: str) -> None:
    stdin = '[{"role": "user", "content": "你好"}]'.encode()
    ended = run(folder, "render", "mine", stdin=stdin, LC_ALL=locale, PYTHONIOENCODING="ascii")
    expect(ended, 0, "<s>H: 你好\nB: ".encode(), b"")


def test_arguments_that_are_not_utf8_are_refused(folder: Path) -> None:
    ended = command(folder, "render", "mine", "-m", os.fsdecode(b"user:\xff"))
    expect(ended, 2, b"", b"the text is not valid UTF-8\n")


@pytest.mark.parametrize(("reader", "text"), [("true", "hi"), ("head -c 5", "x" * 100_000)], ids=["true", "head"])
def test_a_reader_that_closes_the_pipe_early_causes_no_error(folder: Path, reader: str, text: str) -> None:
    script = f"set -o pipefail; '{sys.executable}' -m gateway render mine | {reader}"
    body = json.dumps([{"role": "user", "content": text}]).encode()
    ended = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment(), input=body, capture_output=True, timeout=60, check=False
    )
    expect(ended, 0, b"<s>H:" if reader.startswith("head") else b"", b"")


WRITING = [
    ("--help",),
    ("--version",),
    ("version",),
    ("render", "mine", "-m", "user:x"),
    ("templates",),
    ("diff", "mine", "talk", "-m", "user:x"),
    ("templates", "chatml"),
    ("models",),
    ("check",),
    ("schema", "gateway"),
    ("docs", "cli"),
]


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_a_full_disk_behind_standard_output_is_one_line(folder: Path, words: Sequence[str], unbuffered: str) -> None:
    code, err = on_a_full_disk(folder, *words, PYTHONUNBUFFERED=unbuffered)
    assert (code, err.splitlines()[-1]) == (4, "error: the output cannot be written: No space left on device"), err
    assert "Traceback" not in err


DIFF: dict[str, Case] = {
    "two models, one template": (["mine", "same"], USER, 0, b"the prompts are equal (15 characters)\n", b""),
    "a model and a file": (
        ["mine", "draft.yaml"],
        USER,
        1,
        b"--- mine\n+++ draft.yaml\nfirst difference: byte 3 (line 1, column 4)\n"
        b'  - "<s>\xe2\x9f\xa8here\xe2\x9f\xa9H: 1+1=?\\nB: "\n'
        b'  + "<s>\xe2\x9f\xa8here\xe2\x9f\xa9U: 1+1=?\\nB: "\n'
        b"@@ -1,2 +1,2 @@\n-<s>H: 1+1=?\\n\n+<s>U: 1+1=?\\n\n B:\xc2\xb7\n",
        b"",
    ),
    "a prompt and messages": (
        ["mine", "talk"],
        USER,
        1,
        b"--- mine\n+++ talk\nfirst difference: byte 0 (line 1, column 1)\n"
        b'  - "\xe2\x9f\xa8here\xe2\x9f\xa9<s>H: 1+1=?\\nB: "\n'
        b'  + "\xe2\x9f\xa8here\xe2\x9f\xa9{"role": "user", "conten"\xe2\x80\xa6\n'
        b"@@ -1,2 +1 @@\n-<s>H: 1+1=?\\n\n-B:\xc2\xb7\n"
        b'+{"role": "user", "content": "1+1=?"}\\n\n',
        b"",
    ),
    "a dataset prompt": (
        ["mine", "same", "--prompt", "sums", "--var", "question=a"],
        b"",
        0,
        b"the prompts are equal (11 characters)\n",
        b"",
    ),
    "a notice for one side": (
        ["mine", "fold.yaml", "-m", "system:s"],
        b"",
        1,
        b"--- mine\n+++ fold.yaml\nfirst difference: byte 0 (line 1, column 1)\n"
        b'  - "\xe2\x9f\xa8here\xe2\x9f\xa9<s>S: s\\nB: "\n  + "\xe2\x9f\xa8here\xe2\x9f\xa9H: s\\nB: "\n'
        b"@@ -1,2 +1,2 @@\n-<s>S: s\\n\n+H: s\\n\n B:\xc2\xb7\n",
        b"note: fold: fallback_role: messages[0]: SYSTEM written as HUMAN\n",
    ),
    "no such model": (["mine", "nobody.yaml"], USER, 2, b"", b"nobody.yaml: no such file"),
    "one name": (["mine"], USER, 2, b"", b"missing argument 'B'"),
    "an unknown role": (["mine", "same", "-m", "x:y"], b"", 1, b"", b"role_not_supported: "),
}


@pytest.mark.parametrize(("arguments", "stdin", "code", "out", "err"), DIFF.values(), ids=DIFF)
def test_diff(folder: Path, arguments: Sequence[str], stdin: bytes, code: int, out: bytes, err: bytes) -> None:
    expect(command(folder, "diff", *arguments, stdin=stdin), code, out, err)


def test_diff_needs_no_configuration(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.yaml": TEMPLATE, "b.yaml": OTHER})
    ended = command(tmp_path, "diff", "a.yaml", "b.yaml", stdin=USER)
    assert ended.returncode == 1
    assert ended.stdout.startswith(b"--- a.yaml\n+++ b.yaml\nfirst difference: byte 3 ")


def test_models_is_a_table(folder: Path) -> None:
    table = (
        b"name  template  policy   target  speaks       where\n"
        b"mine  mine      default  mine/0  completions  http://127.0.0.1:1/v1\n"
        b"same  mine      default  same/0  completions  http://127.0.0.1:1/v1\n"
    )
    ended = command(folder, "models")
    expect(ended, 0, ended.stdout, b"")
    assert ended.stdout.startswith(table)
    assert re.fullmatch(rb"talk  chat      eval     talk/0  scripted     \S*hello.yaml\n", ended.stdout[len(table) :])


def test_models_is_json_if_asked(folder: Path) -> None:
    rows = json.loads(command(folder, "models", "--json").stdout)
    assert [row["name"] for row in rows] == ["mine", "same", "talk"]
    assert rows[0] == {
        "name": "mine",
        "template": "mine",
        "policy": "default",
        "target": "mine/0",
        "speaks": "completions",
        "where": "http://127.0.0.1:1/v1",
    }


def test_check_reports_what_it_read(folder: Path) -> None:
    ended = command(folder, "check")
    expect(ended, 0, ended.stdout, b"note: special tokens unknown: mine, same; ")
    assert re.fullmatch(
        rb"gateway.yaml: no problems \(3 models, \d+ files read, all examples correct\)\n", ended.stdout
    )
    expect(command(folder, "check", "-q"), 0, b"", b"")


def test_check_has_a_note_on_proxies_of_the_environment(folder: Path) -> None:
    proxy = "http://127.0.0.1:1"
    ended = command(folder, "check", HTTP_PROXY=proxy, https_proxy=proxy, ALL_PROXY="", NO_PROXY="localhost")
    note = "note: only litellm targets and spans use HTTP_PROXY, https_proxy; for others set proxy, or network.proxy"
    assert ended.stderr.decode().splitlines().count(note) == 1


def test_templates_lists_those_here_and_those_that_are_included(folder: Path) -> None:
    ended = command(folder, "templates")
    expect(ended, 0, ended.stdout, b"")
    lines = [re.split(" {2,}", line) for line in ended.stdout.decode().splitlines()]
    assert lines[:2] == [
        ["name", "kind", "from", "for"],
        ["chat", "chat", "built in", "Messages, unchanged."],
    ]
    assert ["vicuna", "meta", "included", "vicuna-7b-v1.5-16k, vicuna-13b-v1.5-16k"] in lines
    assert ["mine", "meta", "meta_templates/"] in lines
    names = [line[0] for line in lines[2:]]
    assert names == sorted(names)
    assert names == [row["name"] for row in json.loads(command(folder, "templates", "--json").stdout)][1:]


def test_templates_prints_the_file_of_a_template_and_names_it(folder: Path) -> None:
    expect(command(folder, "templates", "mine"), 0, TEMPLATE.encode(), b"meta_templates/mine.yaml\n")
    included = (ROOT / "meta_templates/chatml.yaml").read_bytes()
    expect(command(folder, "templates", "chatml"), 0, included, b"meta_templates/chatml.yaml\n")
    expect(command(folder, "templates", "chatlm"), 2, b"", b'no template "chatlm" (did you mean "chatml"?)')
    similar = b'no template "Llama3"; similar: lazyllm-meta-llama-3, api-system; gateway templates lists all'
    expect(command(folder, "templates", "Llama3"), 2, b"", similar)
    expect(
        command(folder, "templates", "chat"),
        2,
        b"",
        b"the template chat has no file, because it is built in (Messages, unchanged.)\n",
    )


def test_schema_prints_the_schema_of_a_settings_file(folder: Path) -> None:
    for arguments, setting in (([], "models"), (["gateway"], "server"), (["policy"], "params")):
        shown = json.loads(command(folder, "schema", *arguments).stdout)
        assert setting in shown["properties"]


@pytest.mark.parametrize("verb", ["check", "serve"])
def test_without_a_configuration_a_first_one_is_shown_that_passes_the_check(tmp_path: Path, verb: str) -> None:
    ended = command(tmp_path, verb)
    expect(ended, 3, b"", b"or start with:\n\nmodels:\n")
    (tmp_path / "gateway.yaml").write_bytes(ended.stderr.partition(b"\n\n")[2])
    expect(command(tmp_path, "check", "-q"), 0, b"", b"")


def test_a_new_key_is_shown_once_and_its_entry_works(folder: Path) -> None:
    ended = command(folder, "keys", "new", "ci-runner")
    key = re.search(rb"gk_[0-9a-f]{6}_[\w-]{43}", ended.stderr)
    assert ended.returncode == 0
    assert key is not None
    assert key[0] not in ended.stdout
    digest = hashlib.sha256(key[0]).hexdigest()
    assert ended.stdout.decode() == f'ci-runner:\n  sha256: "{digest}"\n  models: ["*"]\n'
    (folder / "keys.yaml").write_bytes(ended.stdout)
    (folder / "keyed.yaml").write_text("keys: {file: keys.yaml}\n" + CONFIG)
    expect(command(folder, "check", "-q", "--config", "keyed.yaml"), 0, b"", b"")


@pytest.mark.parametrize("name", ["", "a b", "a:\n  x", "-", "é", "x" * 65])
def test_a_key_needs_a_plain_name(folder: Path, name: str) -> None:
    ended = command(folder, "keys", "new", "--", name)
    expect(ended, 2, b"", b"the name of a key must have 1 to 64 letters, digits")
    assert b"gk_" not in ended.stderr


def test_check_reports_where_files_of_a_model_disagree(tmp_path: Path) -> None:
    files = {
        "gateway.yaml": "models:\n  mine: {template: mine, targets: [{speaks: scripted, script: hello.yaml}]}\n",
        "hello.yaml": HELLO,
        "meta_templates/mine.yaml": "kind: jinja\nfile: mine/chat_template.jinja\n",
        "meta_templates/spare.yaml": "kind: jinja\nfile: mine/chat_template.jinja\nvariant: rag\n",
        "meta_templates/mine/chat_template.jinja": "{{ messages[0].content }}",
        "meta_templates/mine/additional_chat_templates/rag.jinja": "rag",
        "meta_templates/mine/tokenizer_config.json": '{"chat_template": "another"}',
    }
    write_files(tmp_path, files)
    ended = command(tmp_path, "check")
    assert ended.returncode == 0, ended.stderr.decode()
    another = (
        "tokenizer_config.json and chat_template.jinja have different chat templates: tokenizer_config.json is not used"
    )
    assert [line.partition(", as in")[0] for line in ended.stderr.decode().splitlines()] == [
        f"note: meta_templates/mine.yaml:2 file: {another}",
        "note: meta_templates/mine.yaml:2 file: there are several templates (default, rag): requests use default",
        f"note: meta_templates/spare.yaml:2 file: {another}",
    ]


def test_check_names_a_chat_template_that_renders_no_call_without_content(tmp_path: Path) -> None:
    calls = "{% for m in messages if m.tool_calls %}{{ m.content + OTHER }}{% endfor %}"
    write_files(
        tmp_path,
        {
            "gateway.yaml": "models:\n  mine: {template: mine, targets: [{speaks: scripted, script: hello.yaml}]}\n",
            "hello.yaml": HELLO,
            "meta_templates/mine.yaml": "kind: jinja\nfile: mine/chat_template.jinja\n",
            "meta_templates/mine/chat_template.jinja": calls.replace("OTHER", "1"),
            "meta_templates/spare.yaml": "kind: jinja\nfile: spare.jinja\n",
            "meta_templates/spare.jinja": calls.replace("OTHER", "'!'"),
        },
    )
    ended = command(tmp_path, "check")
    assert ended.returncode == 0, ended.stderr.decode()
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith("note: meta_templates/mine.yaml:2 file: default: no tool call without content, as clients")
    assert line.endswith('(line 1 of the template: TypeError: can only concatenate str (not "int") to str)')


GROUPS = {
    "Start": ("demo", "init", "serve", "ask", "check"),
    "Prompts": ("render", "diff", "parity", "templates", "import"),
    "Evaluation": ("run", "with", "report", "why", "view", "recordings"),
    "Operation": ("models", "keys", "status"),
    "Files": ("schema", "docs"),
}
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)


def test_help_names_every_verb_in_its_group(folder: Path) -> None:
    ended = command(folder, "--help")
    expect(ended, 0, ended.stdout, b"")
    sections = re.findall(r"^(\w+):\n((?:  .*\n)+)", ended.stdout.decode(), re.MULTILINE)
    named = {title: tuple(re.findall(r"^  (\w+)  +\w", text, re.MULTILINE)) for title, text in sections}
    assert {title: named[title] for title in list(named)[1:-1]} == GROUPS  # between Options and Examples


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_has_examples(folder: Path, verb: str) -> None:
    ended = command(folder, verb, "--help")
    expect(ended, 0, ended.stdout, b"")
    assert f"gateway {verb}" in ended.stdout.decode().partition("Examples:")[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], b"Usage: gateway [OPTIONS] VERB"),
        (["sevre"], b"error: no such command 'sevre'. Did you mean 'serve'?\nhelp: gateway --help\n"),
        (
            ["render", "mine", "--jsonn"],
            b"error: no such option '--jsonn'. Did you mean '--json'?\nhelp: gateway render",
        ),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(folder: Path, arguments: Sequence[str], said: bytes) -> None:
    expect(command(folder, *arguments), 2, b"", said)


def test_check_as_json_has_the_place_of_each_problem_and_note(tmp_path: Path) -> None:
    files = {
        "gateway.yaml": "models:\n  a: {template: chatlm, targets: [{speaks: scripted, script: a.yaml}]}\n",
        "a.yaml": HELLO,
        "policies/default.yaml": "cache: {ttl: 5m}\n",
    }
    write_files(tmp_path, files)
    ended = command(tmp_path, "check", "--json")
    assert (ended.returncode, ended.stderr) == (1, b"")
    note = {"file": "policies/default.yaml", "line": 1, "key": "cache.ttl"}
    found = json.loads(ended.stdout)
    (problem,) = found["problems"]
    assert problem == {
        "file": "gateway.yaml",
        "line": 2,
        "key": "models.a.template",
        "message": 'no template "chatlm" (did you mean "chatml"?)',
    }
    assert [{**one, **note} for one in found["notes"]] == found["notes"] != []
    write_files(tmp_path, {"gateway.yaml": files["gateway.yaml"].replace("chatlm", "chat")})
    ended = command(tmp_path, "check", "--json", "--quiet", "--live")
    live = [{"label": "a/0", "found": "runs in this process"}]
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert json.loads(ended.stdout) == {"problems": [], "notes": found["notes"], "live": live}


@pytest.mark.parametrize("redirect", [">", ">>"])
def test_an_included_template_can_be_written_to_its_own_name(tmp_path: Path, redirect: str) -> None:
    place = tmp_path / "meta_templates/chatml.yaml"
    place.parent.mkdir()
    script = f"'{sys.executable}' -m gateway templates chatml {redirect} {place}"
    ended = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment(), capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert place.read_bytes() == (ROOT / "meta_templates/chatml.yaml").read_bytes()
    assert command(tmp_path, "render", "--template", "chatml", "-m", "user:hi").returncode == 0


def test_an_empty_template_without_an_included_one_is_no_template(tmp_path: Path) -> None:
    write_files(tmp_path, {"meta_templates/draft.yaml": ""})
    expect(command(tmp_path, "templates", "draft"), 2, b"", b"meta_templates/draft.yaml is empty or is standard output")


def test_a_broken_link_among_the_templates_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "meta_templates").mkdir()
    (tmp_path / "meta_templates/gone.yaml").symlink_to("nothing.yaml")
    printed = command(tmp_path, "templates", "chatml").stdout
    assert printed == (ROOT / "meta_templates/chatml.yaml").read_bytes()


@pytest.mark.parametrize("word", ["--version", "version"])
def test_the_version_is_the_packages(folder: Path, word: str) -> None:
    from metatemplate.version import VERSION

    expect(command(folder, word), 0, f"gateway {VERSION}\n".encode(), b"")


@pytest.mark.parametrize("words", [(), ("render",)])
def test_help_as_a_verb_is_the_option(folder: Path, words: Sequence[str]) -> None:
    assert command(folder, "help", *words).stdout == command(folder, *words, "--help").stdout != b""
