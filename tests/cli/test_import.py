"""``gateway import`` writes a checked template file, or refuses with a reason; on real files, in process."""

from __future__ import annotations

import hashlib
import json
import re
import resource
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from gateway.cli.options import CommandError
from gateway.workshop.importing.build import ImportedFile
from gateway.workshop.importing.output import write_files
from metatemplate.files.prompt_file import read_prompt
from metatemplate.files.reader import Files
from metatemplate.files.template_file import read_template
from tests.cli.command import command
from tests.journeys.process import run
from tests.support.serving import write_files as write_folder
from tests.workshop.importer.environment.stand_in import stand_in

SOURCES = Path(__file__).parents[1] / "workshop" / "importer" / "sources"

CHATML = """\
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
DEFAULT_SYSTEM = (
    "{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\\nMe.<|im_end|>\\n' }}{% endif %}" + CHATML
)
TRIMS = CHATML.replace("m.content", "m.content | trim")
TOOLS = "{%- if tools %}{{ tools | tojson }}{% endif %}" + CHATML

PROMPTER = {"class": "ChatPrompter", "instruction": "Answer from: {context}", "show": True}
EMPTY_TURNS = """
models = [dict(abbr="led", meta_template=dict(round=[
    dict(role="SYSTEM", begin="S:", end="\\n"), dict(role="HUMAN", begin="H:", end="\\n"),
    dict(role="BOT", begin="B:", end="\\n", generate=True),
]))]
"""
MODELS_TOO = """
models = [dict(abbr="m")]
datasets = [dict(abbr="sums", infer_cfg=dict(prompt_template=dict(template="{a}")))]
"""
TWO_MODELS = """
m = dict(round=[dict(role="HUMAN", begin="H:", end="\\n"), dict(role="BOT", begin="B:", end="</s>", generate=True)])
api = dict(round=[dict(role="HUMAN", api_role="HUMAN"), dict(role="BOT", api_role="BOT", generate=True)])
models = [dict(abbr="one", meta_template=m), dict(abbr="Two/2", meta_template=api)]
"""


def model_folder(place: Path, template: str, **more: object) -> Path:
    """A folder as models come in."""
    place.mkdir()
    (place / "chat_template.jinja").write_text(template)
    tokens = {"bos_token": "<s>", "eos_token": {"content": "<|im_end|>"}, "added_tokens_decoder": {"7": "</s>"}, **more}
    (place / "tokenizer_config.json").write_text(json.dumps(tokens))
    (place / "generation_config.json").write_text(json.dumps({"eos_token_id": [7]}))
    return place


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name, template in (("my-model", CHATML), ("led", DEFAULT_SYSTEM), ("trims", TRIMS), ("tools", TOOLS)):
        model_folder(tmp_path / name, template)
    files = {
        "prompter.json": json.dumps(PROMPTER),
        "two.py": TWO_MODELS,
        "empty-turns.py": EMPTY_TURNS,
        "both.py": "models = [1]\nx = ChatPrompter('a')\n",
        "models-too.py": MODELS_TOO,
        "empty.txt": "hello\n",
        "half.json": json.dumps({**PROMPTER, "instruction": "\ud800"}),
        "half.py": r"models = [dict(meta_template=dict(begin='\ud800', round=[]))]",
    }
    write_folder(tmp_path, {**files, **{file.name: file for file in SOURCES.iterdir()}})
    return tmp_path


def gateway(home: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """``gateway import`` in a folder, in this process."""
    return command(home, "import", *words)


def test_a_process_writes_the_file(home: Path) -> None:
    ended = run(home, "import", "Modelfile", "--name", "mine")
    assert (ended.returncode, ended.stdout) == (0, b""), ended.stderr.decode()
    load(home / "meta_templates" / "mine.yaml")


def load(path: Path) -> object:
    """Read the written file as a start does, its examples included."""
    files = Files(path.parent)
    spec = read_template(files, path, path.stem, files.add_problem(path))
    assert files.problems == []
    return spec


DATASETS = {  # name: (words, files, a line of the first file, a part of standard error)
    "examples before the question": (
        ["sums_gen.py"],
        ["sums-small"],
        "# - FixKRetriever: the examples are the rows [0, 3]",
        "note: inferencer.max_out_len = 16",
    ),
    "labels": (["sums_ppl.py"], ["sums-small", "sums-very_large"], "    labels: {A:", "note: PPLInferencer: "),
    "one dataset of several": (["sums_ppl.py", "--model", "sums-small"], ["sums-small"], "    labels: {A:", ""),
    "several turns": (["sums_turns.py", "--name", "talk"], ["talk"], "multi_turn: true", "note: inferencer.infer_mode"),
    "content parts and messages": (["pictures.json"], ["pictures", "messages"], "          image:", ""),
    "a config with models": (["models-too.py", "--kind", "dataset"], ["sums"], 'template: "{a}"', ""),
}


@pytest.mark.parametrize(("words", "names", "line", "reported"), DATASETS.values(), ids=DATASETS)
def test_datasets_become_prompts(home: Path, words: list[str], names: list[str], line: str, reported: str) -> None:
    ended = gateway(home, *words)
    assert ended.returncode == 0, ended.stderr.decode()
    assert line in (home / "prompts" / f"{names[0]}.yaml").read_text()
    assert reported in ended.stderr.decode()
    assert sorted(path.stem for path in (home / "prompts").iterdir()) == sorted(names)
    for name in names:
        files, path = Files(home), home / "prompts" / f"{name}.yaml"
        assert read_prompt(files, path, name, files.add_problem(path)) is not None, files.problems


WRITES = {  # name: (words, file, lines of the file, parts of standard error)
    "a chat template": (
        ["my-model"],
        "my-model",
        ["kind: jinja", 'file: "my-model/chat_template.jinja"'],
        ["Answers end at: '<|im_end|>'"],
    ),
    "its turns": (
        ["my-model", "--as", "meta"],
        "my-model",
        ['  - {role: BOT, begin: "<|im_start|>assistant\\n", end: "<|im_end|>\\n", generate: true}'],
        ["of 44 conversations give the same prompt, byte for byte", "Not compared: tools, calls and results (8)"],
    ),
    "turns but for blanks": (
        ["trims", "--as", "meta", "--without", "blanks", "--without", "continued"],
        "trims",
        ["kind: meta"],
        ["messages with white space at their ends ("],
    ),
    "an OpenCompass config": (
        ["hf_mine.py"],
        "mine-7b-hf",
        ['begin: "<s>"', "eos_token_id: 2", 'stop: ["<|end|>", "<|user|>"]'],
        ["port of OpenCompass's parser", "note: max_out_len = 100", "note: the prompts begin with '<s>'. "],
    ),
    "one model of several": (["two.py", "--model", "one"], "one", ['  - {role: HUMAN, begin: "H:", end: "\\n"}'], []),
    "OpenCompass's own empty turns": (
        ["empty-turns.py", "--turns", "opencompass", "--name", "empty"],
        "empty",
        ["turns: opencompass"],
        ["Parity: not compared"],
    ),
    "a template for an API": (
        ["two.py", "--model", "Two/2"],
        "two-2",
        ["    sent:", "  - {role: HUMAN, api_role: HUMAN}"],
        ["Parity: not compared"],
    ),
    "a prompter": (
        ["prompter.json", "--marks-of", "qwen"],
        "prompter",
        ["class: chat", "marks_of: qwen"],
        ["note: show:"],
    ),
    "a Modelfile": (["Modelfile", "--name", "kind"], "kind", ["bos: engine"], ["32 of 32", "note: line 16: SYSTEM"]),
}


@pytest.mark.parametrize(("words", "name", "lines", "told"), WRITES.values(), ids=WRITES)
def test_a_source_becomes_a_file_that_loads(
    home: Path, words: list[str], name: str, lines: list[str], told: list[str]
) -> None:
    ended = gateway(home, *words)
    said = ended.stderr.decode()
    assert (ended.returncode, ended.stdout) == (0, b""), said
    path = home / "meta_templates" / f"{name}.yaml"
    text = path.read_text()
    load(path)
    assert said.splitlines()[-1] == f"wrote meta_templates/{name}.yaml"
    for line in lines:
        assert line in text.splitlines()
    for part in told:
        assert part in said
    assert str(home) not in text
    assert "examples:" in text


def test_a_chat_template_is_copied_with_the_files_it_needs(home: Path) -> None:
    gateway(home, "my-model", "--name", "mine")
    folder = home / "meta_templates" / "mine"
    assert sorted(path.name for path in folder.iterdir()) == [
        "chat_template.jinja",
        "generation_config.json",
        "tokenizer_config.json",
    ]
    digest = hashlib.sha256(CHATML.encode()).hexdigest()
    assert f'sha256: "{digest}"' in (home / "meta_templates" / "mine.yaml").read_text()


def test_a_template_that_writes_tools_has_a_note_and_declares_nothing(home: Path) -> None:
    ended = gateway(home, "tools")
    assert b"declare the format of the model's tool calls" in ended.stderr
    assert "\ntools:" not in (home / "meta_templates" / "tools.yaml").read_text()


def test_a_large_tokenizer_configuration_is_copied_without_what_decides_no_prompt(home: Path) -> None:
    path = home / "my-model" / "tokenizer_config.json"
    tokens: dict[str, object] = {str(number): {"content": f"<unused{number}>" + "x" * 40} for number in range(20_000)}
    tokens |= {"8": {"content": "<|user|>", "special": True, "lstrip": False}}
    path.write_text(
        json.dumps({"eos_token": "<|im_end|>", "added_tokens_decoder": {**tokens, "7": {"content": "</s>"}}})
    )
    ended = gateway(home, "my-model")
    assert ended.returncode == 0, ended.stderr.decode()
    assert b"tokenizer_config.json is larger than 1024 KiB" in ended.stderr
    copied = json.loads((home / "meta_templates" / "my-model" / "tokenizer_config.json").read_text())
    kept = {"7": {"content": "</s>"}, "8": {"content": "<|user|>", "special": True}}
    assert copied == {"eos_token": "<|im_end|>", "added_tokens_decoder": kept}
    assert b"Answers end at: '<|im_end|>', '</s>'" in ended.stderr


def test_a_prompter_with_several_slots_gets_examples_with_variables(home: Path) -> None:
    (home / "slots.py").write_text("p = ChatPrompter('From {context} answer {question}', extra_keys=['more'])")
    ended = gateway(home, "slots.py", "--marks-of", "qwen")
    assert ended.returncode == 0, ended.stderr.decode()
    text = (home / "meta_templates" / "slots.yaml").read_text()
    assert 'variables: {context: "(the context)", question: "(the question)", more: "(the more)"}' in text


def test_models_of_one_name_are_numbered(home: Path) -> None:
    more = ", dict(abbr='one-2', meta_template=m), dict(abbr='one', meta_template=m)]"
    (home / "twins.py").write_text(TWO_MODELS.replace("Two/2", "one").rstrip()[:-1] + more)
    ended = gateway(home, "twins.py", "--out", "made/")
    assert ended.returncode == 0
    assert sorted(path.name for path in (home / "made").iterdir()) == [
        "one-2.yaml",
        "one-3.yaml",
        "one-4.yaml",
        "one.yaml",
    ]
    assert b"the name one-3 has a number, because several models or datasets are named one" in ended.stderr


SUMS = """
with read_base():
    from .base import template
sums_datasets = [dict(abbr="sums", infer_cfg=dict(prompt_template=dict(template=template)))]
"""
EVAL = """
with read_base():
    from opencompass.configs.datasets.sums.sums_gen import sums_datasets
datasets = sums_datasets
{further}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed package that has dataset configs. The package fails if it is imported."""
    write_folder(
        tmp_path,
        {
            "site/opencompass/__init__.py": "raise SystemExit('imported')",
            "site/opencompass/configs/datasets/sums/sums_gen.py": SUMS,
            "site/opencompass/configs/datasets/sums/base.py": "template = 'Q: {question}'",
            "secret.py": "template = 'secret'",
        },
    )
    return tmp_path / "site"


def test_a_config_reads_packages_in_its_roots_alone(home: Path, site: Path) -> None:
    (home / "eval.py").write_text(EVAL.format(further=""))
    ended = gateway(home, "eval.py")
    assert ended.returncode == 1
    assert b"was not found in the config's folder; name the folder of its package with --root" in ended.stderr
    for root in (site, site / "opencompass"):
        ended = gateway(home, "eval.py", "--force", "--root", str(home), "--root", str(root))
        assert (ended.returncode, ended.stderr.splitlines()[-1]) == (0, b"wrote prompts/sums.yaml")
    assert "Q: {question}" in (home / "prompts" / "sums.yaml").read_text()


def test_the_installed_package_is_a_root_and_is_not_imported(home: Path, site: Path) -> None:
    (home / "eval.py").write_text(EVAL.format(further=""))
    ended = run(home, "import", "eval.py", PYTHONPATH=str(site))
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (0, b"wrote prompts/sums.yaml")


def test_a_config_of_a_package_reads_other_folders_of_its_root(home: Path, site: Path) -> None:
    demo = site / "opencompass" / "configs" / "datasets" / "demo"
    demo.mkdir()
    (demo / "demo.py").write_text("with read_base():\n    from ..sums.sums_gen import sums_datasets\n")
    assert gateway(home, str(demo / "demo.py")).returncode == 1
    assert gateway(home, str(demo / "demo.py"), "--root", str(site / "opencompass")).returncode == 0


@pytest.mark.parametrize("how", ["a link", "dots", "a link to a folder"])
def test_no_file_outside_of_the_roots_is_read(home: Path, site: Path, how: str) -> None:
    sums = site / "opencompass" / "configs" / "datasets" / "sums"
    (sums / "base.py").unlink()
    if how == "a link":
        (sums / "base.py").symlink_to(site.parent / "secret.py")
    elif how == "dots":
        (sums / "sums_gen.py").write_text(SUMS.replace(".base", "......secret"))
    else:
        (sums / "out").symlink_to(site.parent)
        (sums / "sums_gen.py").write_text(SUMS.replace(".base", ".out.secret"))
    mine = home / "mine"
    mine.mkdir()
    (mine / "eval.py").write_text(EVAL.format(further=""))
    ended = gateway(mine, "eval.py", "--root", str(site))
    assert ended.returncode == 1
    assert b" was not found " in ended.stderr
    assert not (mine / "prompts").exists()


def test_a_part_that_was_not_read_is_listed_and_the_exit_code_is_1(home: Path, site: Path) -> None:
    (home / "eval.py").write_text(
        EVAL.format(further="gone_datasets = make()").replace("\ndatasets = ", "\na_datasets = ")
    )
    ended = gateway(home, "eval.py", "--root", str(site))
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-4:-2] == [
        b"wrote prompts/sums.yaml",
        b"eval.py: not imported: gone_datasets: make(\xe2\x80\xa6) (line 5)",
    ]
    assert b"1 imported, 1 found and not read" in ended.stderr.splitlines()[-1]
    assert gateway(home, "eval.py", "--root", str(site), "--model", "sums", "--force").returncode == 0


LOOP = """
sums_datasets = []
for size in ("small", "large"):
    template = f"A {size} sum: {{q}}"
    sums_datasets.append(dict(abbr="sums-" + size, infer_cfg=dict(prompt_template=dict(template=template))))
print("not shown")
"""


def test_a_config_that_computes_its_prompts_is_imported_by_its_own_python(home: Path, tmp_path: Path) -> None:
    (home / "loop.py").write_text(LOOP)
    assert gateway(home, "loop.py").returncode == 1
    ended = gateway(home, "loop.py", "--python", str(stand_in(tmp_path)))
    assert (ended.returncode, ended.stdout) == (0, b""), ended.stderr.decode()
    assert ended.stderr.startswith(b"sums-small: imported from the dataset config ")
    assert b"not shown" not in ended.stderr
    written = {path.stem: yaml.safe_load(path.read_text()) for path in (home / "prompts").iterdir()}
    templates = {name: prompt["prompt_template"]["template"] for name, prompt in written.items()}
    assert templates == {"sums-small": "A small sum: {q}", "sums-large": "A large sum: {q}"}


def test_a_base_whose_name_is_too_long_for_a_file_is_no_traceback(home: Path) -> None:
    text = f"with read_base():\n    from .{'a' * 300} import c_datasets\nq_infer_cfg = dict(prompt_template='x')"
    (home / "long.py").write_text(text)
    done = gateway(home, "long.py", "--kind", "dataset")
    assert done.returncode != 0
    assert b"Traceback" not in done.stderr
    assert b"Errno" not in done.stderr


def test_a_root_is_a_folder_and_only_for_configs(home: Path) -> None:
    model_folder(home / "plain", CHATML)
    for words in (["plain", "--root", "gone"], ["plain", "--root", "."]):
        assert gateway(home, *words).returncode == 2


def test_turns_of_a_template_that_writes_the_day_have_a_note(home: Path) -> None:
    model_folder(home / "dated", "{{ strftime_now('%Y') }}" + CHATML)
    ended = gateway(home, "dated", "--as", "meta")
    assert ended.returncode == 0, ended.stderr.decode()
    assert b"the imported texts always contain the date of this import" in ended.stderr


def test_the_tokens_of_an_older_folder_come_along(home: Path) -> None:
    (home / "my-model" / "tokenizer_config.json").write_text('{"bos_token": "<other>"}')
    (home / "my-model" / "special_tokens_map.json").write_text(
        '{"eos_token": "<|im_end|>", "bos_token": {"content": "<s>"}}'
    )
    ended = gateway(home, "my-model")
    assert ended.returncode == 0, ended.stderr.decode()
    assert b"note: bos_token is '<other>' in tokenizer_config.json and '<s>' in special_tokens_map.json" in ended.stderr
    assert b"Answers end at: '<|im_end|>'" in ended.stderr
    copies = home / "meta_templates" / "my-model"
    assert (copies / "special_tokens_map.json").read_bytes() == (
        home / "my-model" / "special_tokens_map.json"
    ).read_bytes()
    alone = gateway(home, "my-model", "--out", "-").stdout.decode()
    assert 'special_tokens: {bos_token: "<s>", eos_token: "<|im_end|>"}\n' in alone


NAMED = {  # name: (words, lines of the file, what is told)
    "as transformers chooses": (
        [],
        ['file: "my-model/chat_template.jinja"'],
        "note: there are several templates (default, rag)",
    ),
    "one for all": (["--variant", "rag"], ["variant: rag"], ""),
    "turns of one": (["--variant", "rag", "--as", "meta"], ['begin: "docs:"'], ""),
}


@pytest.mark.parametrize(("words", "lines", "told"), NAMED.values(), ids=NAMED)
def test_named_templates_come_along(home: Path, words: list[str], lines: list[str], told: str) -> None:
    (home / "my-model" / "additional_chat_templates").mkdir()
    (home / "my-model" / "additional_chat_templates" / "rag.jinja").write_text("docs:" + CHATML)
    ended = gateway(home, "my-model", *words)
    assert ended.returncode == 0, ended.stderr.decode()
    path = home / "meta_templates" / "my-model.yaml"
    assert set(lines) <= set(path.read_text().splitlines())
    assert told in ended.stderr.decode()
    assert (b"there are several templates" in ended.stderr) == bool(told)
    load(path)
    if "meta" not in words:
        copy = home / "meta_templates" / "my-model" / "additional_chat_templates" / "rag.jinja"
        assert copy.read_text() == "docs:" + CHATML


OF_SEVERAL = {  # name: (words, how standard error begins, the notes on the choice)
    "as they stand": (
        [],
        "several: imported from the chat template of several/chat_template.jinja\n",
        [
            "there are several templates (default, rag, tool_use): requests use default, and requests with tools use "
            "tool_use, as in transformers; to use one template for all requests, set `variant`"
        ],
    ),
    "one of them": (["--variant", "rag"], "several: imported from the chat template 'rag' of several/", []),
    "alone": (
        ["--out", "-"],
        "several: imported from the chat template of several/chat_template.jinja\n",
        [
            "only the chat template default was imported, without rag, tool_use "
            "(the folder uses tool_use for requests with tools); to import them too, write to a file"
        ],
    ),
    "turns": (
        ["--as", "meta"],
        "several: imported from the chat template of several/chat_template.jinja, its turns",
        [
            "only the chat template default was imported, without rag, tool_use "
            "(the folder uses tool_use for requests with tools); to import them too, remove --as meta"
        ],
    ),
    "turns of one of them": (
        ["--as", "meta", "--variant", "rag"],
        "several: imported from the chat template 'rag' of several/",
        ["only the chat template rag was imported, without default, tool_use; to import them too, remove --as meta"],
    ),
}


@pytest.mark.parametrize(("words", "begins", "notes"), OF_SEVERAL.values(), ids=OF_SEVERAL)
def test_the_notes_on_several_templates_are_true_of_the_file(
    home: Path, words: list[str], begins: str, notes: list[str]
) -> None:
    folder = model_folder(home / "several", CHATML, pad="x" * 1_100_000)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("docs:" + CHATML)
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text(TOOLS)
    ended = gateway(home, "several", *words)
    said = ended.stderr.decode()
    assert ended.returncode == 0, said
    assert said.startswith(begins)
    told = [line.removeprefix("note: ") for line in said.splitlines() if line.startswith("note: ")]
    about = ("only the chat template", "there are several templates")
    assert [note for note in told if note.startswith(about)] == notes
    assert any("the copy contains only" in note for note in told) == ("meta" not in words and "-" not in words)
    assert any("the chat template supports tools" in note for note in told) == (not words)


def test_a_name_that_no_template_has_is_refused(home: Path) -> None:
    ended = gateway(home, "my-model", "--variant", "rag")
    assert ended.returncode == 1
    assert b"the file has no template 'rag'" in ended.stderr


@pytest.mark.parametrize("words", [["my-model"], ["my-model/tokenizer_config.json", "--kind", "hf"]], ids=str)
def test_standard_output_holds_the_file_alone(home: Path, words: list[str]) -> None:
    if words[0].endswith(".json"):
        tokens = json.loads((home / words[0]).read_text())
        (home / words[0]).write_text(json.dumps({**tokens, "chat_template": CHATML}))
    ended = gateway(home, *words, "--out", "-")
    assert ended.returncode == 0, ended.stderr.decode()
    path = home / "piped.yaml"
    path.write_bytes(ended.stdout)
    load(path)
    assert b"template: |\n" in ended.stdout
    assert not (home / "meta_templates").exists()


def test_several_models_become_several_files(home: Path) -> None:
    ended = gateway(home, "two.py", "--out", "made/")
    assert ended.returncode == 0, ended.stderr.decode()
    assert sorted(path.name for path in (home / "made").iterdir()) == ["one.yaml", "two-2.yaml"]


def test_nothing_is_overwritten_without_force(home: Path) -> None:
    assert gateway(home, "two.py", "--model", "one").returncode == 0
    path = home / "meta_templates" / "one.yaml"
    path.write_text("mine\n")
    ended = gateway(home, "two.py", "--model", "one")
    assert (ended.returncode, path.read_text()) == (2, "mine\n")
    assert b"overwrite it with --force" in ended.stderr
    assert gateway(home, "two.py", "--model", "one", "--force").returncode == 0
    load(path)


def test_files_of_an_earlier_import_are_removed(home: Path) -> None:
    folder = home / "meta_templates" / "mine"
    model_folder(home / "plain", CHATML)
    (home / "plain" / "generation_config.json").unlink()
    (home / "my-model" / "additional_chat_templates").mkdir()
    (home / "my-model" / "additional_chat_templates" / "tool_use.jinja").write_text("old:" + CHATML)
    assert gateway(home, "my-model", "--name", "mine").returncode == 0
    (folder / "README.md").write_text("mine\n")
    ended = gateway(home, "plain", "--name", "mine", "--force")
    assert ended.returncode == 0, ended.stderr.decode()
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "README.md",
        "chat_template.jinja",
        "tokenizer_config.json",
    ]
    told = [line for line in ended.stderr.decode().splitlines() if line.startswith("removed ")]
    assert [line.split(",")[0] for line in told] == [
        "removed meta_templates/mine/generation_config.json",
        "removed meta_templates/mine/additional_chat_templates/tool_use.jinja",
    ]


def test_a_folder_that_is_a_link_is_not_written_to(home: Path) -> None:
    (home / "meta_templates").mkdir()
    (home / "meta_templates" / "led").symlink_to(home / "led")
    before = sorted((home / "led").iterdir())
    ended = gateway(home, "my-model", "--name", "led", "--force")
    assert ended.returncode == 2
    assert b"meta_templates/led is a link" in ended.stderr
    assert sorted((home / "led").iterdir()) == before


@pytest.mark.parametrize("exists", [False, True])
def test_a_write_that_fails_leaves_nothing_half(tmp_path: Path, exists: bool) -> None:
    path, file = tmp_path / "one.yaml", ImportedFile(name="one", text="x" * 5000, files=(), report=())
    if exists:
        path.write_text("mine\n")
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(CommandError, match="cannot be written"):
            write_files(file, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [one.name for one in tmp_path.iterdir()] == (["one.yaml"] if exists else [])
    assert not exists or path.read_text() == "mine\n"


REFUSES = {  # name: (words, exit code, a part of standard error)
    "no such file": (["gone.py"], 2, "gone.py: no such file or folder"),
    "a device": (["/dev/zero"], 2, "/dev/zero is neither a file nor a folder; give the path of a file"),
    "an empty folder": ([".", "--kind", "hf"], 2, "has no chat template"),
    "a folder for a format of files": ([".", "--kind", "dataset"], 2, "--kind dataset reads a file; give the path"),
    "another format": (
        ["Modelfile", "--kind", "lazyllm"],
        1,
        "note: Modelfile looks like an Ollama Modelfile; use --kind ollama, or leave --kind out",
    ),
    "nothing known": (["empty.txt"], 1, "empty.txt: the format is not recognised; choose the format with --kind"),
    "two kinds at once": (["both.py"], 1, "both.py: the format may be lazyllm or opencompass"),
    "several models to one file": (["two.py", "--out", "one.yaml"], 2, "choose one with --model: one, two-2"),
    "several models to standard output": (["two.py", "--out", "-"], 2, "choose one with --model"),
    "several models with one name": (["two.py", "--name", "x"], 2, "--name needs a single file"),
    "a model that is not there": (["two.py", "--model", "three"], 2, 'no model or dataset "three"'),
    "a bad name": (["my-model", "--name", "../x"], 2, "is not a valid template name"),
    "the name of messages": (["my-model", "--name", "chat"], 2, "is not a valid template name"),
    "another ending": (["two.py", "--model", "one", "--out", "x.txt"], 2, "must end in .yaml for a file"),
    "a word for another kind": (["two.py", "--marks-of", "qwen"], 2, "--marks-of applies only to lazyllm"),
    "--as for another kind": (["Modelfile", "--as", "meta"], 2, "--as applies only to hf"),
    "--without for a chat template": (["my-model", "--without", "system"], 2, "only to hf with --as meta"),
    "a default system turn as turns": (
        ["led", "--as", "meta"],
        1,
        "a system message changes the start of the prompt",
    ),
    "trimmed content as turns": (
        ["trims", "--as", "meta"],
        1,
        "to exclude these conversations from the comparison, add --without blanks --without continued",
    ),
    "empty turns in OpenCompass": (["empty-turns.py"], 1, "use --turns opencompass, or move the role"),
    "--turns for another kind": (["Modelfile", "--turns", "opencompass"], 2, "--turns applies only to opencompass"),
    "half of a character in JSON": (["half.json"], 1, r"half.json: '\ud800' is half of a surrogate pair"),
    "half of a character in Python": (["half.py"], 1, r"half.py:1: meta_template contains the incomplete character"),
    "a variant without a name": (["my-model", "--variant", ""], 1, "variant: is empty"),
    "a variant of another kind": (["two.py", "--variant", ""], 2, "--variant applies only to hf"),
    "--python for another format": (
        ["prompter.json", "--python", "python"],
        2,
        "--python applies only to configs in Python, and prompter.json",
    ),
    "--python for another kind": (
        ["two.py", "--python", "python", "--kind", "lazyllm"],
        2,
        "--python applies only to opencompass, dataset",
    ),
    "a Python that is missing": (
        ["two.py", "--python", "gone/python"],
        1,
        "two.py: gone/python did not load the config: it cannot be started (No such file or directory)",
    ),
    "an unknown family": (["prompter.json", "--marks-of", "gpt"], 1, "unknown family or model 'gpt'"),
    "a kind that is none": (["two.py", "--kind", "x"], 2, "invalid value for '--kind': 'x' is not one of"),
}


@pytest.mark.parametrize(("words", "code", "says"), REFUSES.values(), ids=REFUSES)
def test_what_cannot_be_imported_writes_nothing(home: Path, words: list[str], code: int, says: str) -> None:
    before = sorted(home.rglob("*"))
    ended = gateway(home, *words)
    assert (ended.returncode, ended.stdout) == (code, b""), ended.stderr.decode()
    assert says in ended.stderr.decode()
    assert sorted(home.rglob("*")) == before


DEEP = {
    "deep.json": "[" * 100_000,
    "closed.json": "[" * 100_000 + "]" * 100_000,
    "deep.yaml": "[" * 100_000,
    "deep.py": "x = " + "[" * 100_000 + "]" * 100_000,
    "template.py": "x = []\n" + "x = [x]\n" * 20_000 + "meta_template = dict(round=x)",
}


@pytest.mark.parametrize("name", DEEP)
def test_a_file_that_nests_without_end_is_refused_in_one_line(home: Path, name: str) -> None:
    (home / name).write_text(DEEP[name], encoding="utf-8")
    ended = gateway(home, name, "--out", "-")
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert re.match(rf"{name}\S*: (.* nested|the file is not valid Python: too many nested)", ended.stderr.decode())
    assert b"Traceback" not in ended.stderr


def test_a_round_without_a_generating_role_is_imported_for_scoring(home: Path) -> None:
    """The template of the document, as it is printed before ``generate`` is explained."""
    (home / "mute.py").write_text(
        "meta_template = dict(round=[dict(role='HUMAN', begin='<HUMAN>: ', end='<eoh>\\n'), "
        "dict(role='BOT', begin='<BOT>: ', end='<eob>\\n')])"
    )
    ended = gateway(home, "mute.py")
    assert ended.returncode == 0, ended.stderr
    assert b"note: no role has generate: true, so the template only scores complete conversations" in ended.stderr
    assert b"Answers end at" not in ended.stderr
    example = yaml.safe_load((home / "meta_templates" / "mute.yaml").read_text())["examples"][0]
    assert example["prompt"] == "<HUMAN>: 1+1=?<eoh>\n<BOT>: 4<eob>\n"
    assert [message["role"] for message in example["messages"]] == ["user", "assistant"]


def test_no_end_of_answers_is_asked_for_an_api_template(home: Path) -> None:
    (home / "api.py").write_text(
        "meta_template = dict(round=[dict(role='HUMAN', api_role='HUMAN'), "
        "dict(role='BOT', api_role='BOT', generate=True)])"
    )
    ended = gateway(home, "api.py")
    assert ended.returncode == 0, ended.stderr
    assert b"Answers end at" not in ended.stderr


def test_a_link_out_of_the_folder_is_not_followed(home: Path) -> None:
    secret = home / "secret.py"
    secret.write_text("models = [dict(abbr='s', meta_template=dict(round=[]))]")
    (home / "configs").mkdir()
    (home / "configs" / "base.py").symlink_to(secret)
    (home / "configs" / "c.py").write_text("with read_base():\n    from .base import models\n")
    ended = gateway(home, "configs/c.py", "--kind", "opencompass")
    assert ended.returncode == 1
    assert b".base was not found beside configs/c.py; put base.py there (a link out of the folder" in ended.stderr
