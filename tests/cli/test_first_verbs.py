"""``ask``, ``init``, ``demo`` and ``check --live`` with a real gateway, which is also the engine that they ask."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.connecting.engine import ServedModel
from gateway.cli.connecting.first_config import of_engine
from gateway.cli.connecting.live_check import other_llamacpp
from gateway.cli.options import CommandError
from gateway.cli.verbs.demo import DEMO, copy_demo
from gateway.config.load import load, read_configuration
from gateway.config.snapshot import Engine
from metatemplate.files.template_models import named_in
from tests.cli.command import command, on_a_full_disk
from tests.support.serving import ROOT, Gateway, gateway
from tests.support.upstream.server import FaultyUpstream

KEYS = {"open": "key-of-the-test", "other": "key-without-models"}

CONFIG = """\
keys: {{file: keys.yaml}}
models:
  demo:
    template: sft-demo
    policy: eval
    targets: [{{speaks: embedded, path: {root}/demo/model}}]
  org/breaks:
    template: chat
    targets: [{{speaks: chat, url: "{broken}"}}]
"""
ENGINE = """\
models:
  google/gemma-2b-it: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
  google/gemma-3-4b-it: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with client keys, and a model whose stream breaks off."""
    folder = tmp_path_factory.mktemp("served")
    digests = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in KEYS.items()}
    (folder / "keys.yaml").write_text("".join([f'{name}: {{sha256: "{hex}"}}\n' for name, hex in digests.items()]))
    with (
        FaultyUpstream() as upstream,
        gateway(folder, CONFIG.format(root=ROOT, broken=upstream.url("drop-midstream", k=2))) as running,
    ):
        yield running


def ask(served: Gateway, folder: Path, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``gateway ask`` with a key."""
    ended = command(folder, "ask", *words, "--url", served.root, "--key", "env:KEY", stdin=stdin, KEY=KEYS["open"])
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


# ---------------------------------------------------------------- ask


def test_the_answer_is_on_standard_output_and_the_times_are_on_standard_error(served: Gateway, tmp_path: Path) -> None:
    code, out, err = ask(served, tmp_path, "demo", "1+1=?")
    assert (code, out) == (0, "2\n")
    last = err.splitlines()[-1]
    assert last.startswith("first text after ")
    for part in ("whole answer after ", "13 + 2 tokens", "finish_reason stop", "template sft-demo@", "target demo/0"):
        assert part in last
    assert "note: default_parameter: temperature=0" in err.splitlines()


def test_the_question_may_come_from_standard_input(served: Gateway, tmp_path: Path) -> None:
    assert ask(served, tmp_path, "demo", "--param", "max_tokens=1", stdin=b"12+30=?")[:2] == (0, "4\n")


def test_a_system_message_is_sent_too(served: Gateway, tmp_path: Path) -> None:
    _, _, alone = ask(served, tmp_path, "demo", "1+1=?")
    _, _, both = ask(served, tmp_path, "demo", "1+1=?", "--system", "Add.")
    assert "13 + " in alone
    assert "13 + " not in both


def test_without_an_address_the_gateway_of_the_folders_configuration_is_asked(served: Gateway, tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(f"server: {{host: 127.0.0.1, port: {served.port}}}\nmodels: {{}}\n")
    found = command(tmp_path, "ask", "demo", "1+1=?", "--key", "env:KEY", KEY=KEYS["open"])
    assert (found.returncode, found.stdout) == (0, b"2\n"), found.stderr
    (tmp_path / "gateway.yaml").write_text("server: {prt: 1}\nmodels: {}\n")
    broken = command(tmp_path, "ask", "demo", "1+1=?")
    assert (broken.returncode, b"gateway.yaml has problems; list them with gateway check" in broken.stderr) == (2, True)


REFUSED = {
    "an unknown model": (["demmo", "hi"], 'model_not_found: no model "demmo"'),
    "a field that is refused": (["demo", "hi", "--param", "temperature=9"], "invalid_value: "),
    "a stream that breaks off": (["org/breaks", "hi"], "upstream_disconnected: "),
    "no gateway": (
        ["demo", "hi", "--url", "http://127.0.0.1:9"],
        "no gateway answers at http://127.0.0.1:9; start a gateway",
    ),
}


@pytest.mark.parametrize(("words", "told"), REFUSED.values(), ids=REFUSED)
def test_a_failure_is_one_line_and_exit_code_1(served: Gateway, tmp_path: Path, words: list[str], told: str) -> None:
    ended = command(tmp_path, "ask", "--url", served.root, "--key", "env:KEY", *words, KEY=KEYS["open"])
    assert ended.returncode == 1
    assert told in ended.stderr.decode().splitlines()[-1]


@pytest.mark.parametrize("words", [("ask", "m", "hi", "--url"), ("init", "--engine")], ids=["ask", "init"])
def test_an_address_without_a_scheme_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    ended = command(tmp_path, *words, "localhost:8000")
    assert (ended.returncode, [*tmp_path.iterdir()]) == (2, [])
    assert "expected an address such as http://127.0.0.1:8000/v1" in ended.stderr.decode()


@pytest.mark.parametrize("words", [("ask", "demo", "1+1=?"), ("status",)], ids=["ask", "status"])
def test_a_full_disk_is_one_line_after_an_answer_too(served: Gateway, tmp_path: Path, words: tuple[str, ...]) -> None:
    code, err = on_a_full_disk(tmp_path, *words, "--url", served.root, "--key", "env:KEY", KEY=KEYS["open"])
    assert (code, err) == (4, "error: the output cannot be written: No space left on device\n")


def test_without_the_key_the_gateways_refusal_is_shown(served: Gateway, tmp_path: Path) -> None:
    ended = command(tmp_path, "ask", "demo", "hi", "--url", served.root)
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert "invalid_api_key: " in ended.stderr.decode()


# ---------------------------------------------------------------- init


def test_init_writes_the_models_of_an_engine_and_check_accepts_them(served: Gateway, tmp_path: Path) -> None:
    ended = command(tmp_path, "init", "--engine", served.root, "--key", "env:KEY", KEY=KEYS["open"])
    assert (ended.returncode, ended.stdout) == (0, b"wrote gateway.yaml; its models: demo, breaks\n"), ended.stderr
    result = read_configuration(tmp_path / "gateway.yaml", {"KEY": KEYS["open"]}, everything=True)
    assert result.problems == ()
    assert result.snapshot is not None
    targets = [target for model in result.snapshot.models.values() for target in model.targets]
    assert [(target.model, target.url, target.speaks) for target in targets] == [
        ("demo", f"{served.root}/v1", "chat"),
        ("org/breaks", f"{served.root}/v1", "chat"),
    ]
    live = command(tmp_path, "check", "--live", KEY=KEYS["open"])
    assert live.returncode == 0, live.stderr
    assert live.stderr.startswith(b"note: special tokens unknown: demo, breaks; ")
    assert live.stdout.decode().splitlines()[1:] == ["demo/0    serves demo", "breaks/0  serves org/breaks"]


def test_init_adds_the_template_for_a_models_name_in_comments(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/hello.yaml").write_text("[Hello, {finish: stop}]")
    with gateway(tmp_path / "engine", ENGINE) as engine:
        ended = command(tmp_path, "init", "--engine", engine.root)
        assert ended.stdout == b"wrote gateway.yaml; its models: gemma-2b-it, gemma-3-4b-it\n", ended.stderr
        file = tmp_path / "gateway.yaml"
        written = file.read_text()
        ready = written.partition("  # The same model with the exact prompt of gemma, ")[2]
        commented = [line for line in ready.splitlines()[2:] if line.startswith("  # ")]
        assert len(commented) == 4
        file.write_text(written.replace("\n".join(commented), "\n".join(["  " + line[4:] for line in commented])))
        result = read_configuration(file, {}, everything=True)
        assert result.problems == ()
        assert result.snapshot is not None
        assert [*result.snapshot.models] == ["gemma-2b-it", "gemma-2b-it-gemma", "gemma-3-4b-it"]
        exact = result.snapshot.models["gemma-2b-it-gemma"]
        assert (exact.template.name, exact.targets[0].speaks) == ("gemma", "completions")
        assert (exact.targets[0].url, exact.targets[0].model) == (f"{engine.root}/v1", "google/gemma-2b-it")
        live = command(tmp_path, "check", "--live")
        assert (live.returncode, b"gemma-2b-it-gemma/0  serves google/gemma-2b-it" in live.stdout) == (0, True)


def test_init_without_an_engine_writes_a_starter_that_check_accepts(tmp_path: Path) -> None:
    assert command(tmp_path, "init").returncode == 0
    assert command(tmp_path, "check").returncode == 0


def test_init_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text("mine")
    ended = command(tmp_path, "init")
    assert (ended.returncode, (tmp_path / "gateway.yaml").read_text()) == (2, "mine")
    assert "gateway.yaml: this file exists and is not overwritten" in ended.stderr.decode()


def test_init_writes_nothing_if_the_engine_does_not_answer(tmp_path: Path) -> None:
    ended = command(tmp_path, "init", "--engine", "http://127.0.0.1:9")
    assert (ended.returncode, [*tmp_path.iterdir()]) == (1, [])
    assert "http://127.0.0.1:9/v1: " in ended.stderr.decode()


SERVED = (
    ServedModel("Qwen/Qwen1.5-7B-Chat", "vllm"),
    ServedModel("/models/Qwen1.5-7B-Chat", "vllm"),
    ServedModel('my model: 7"b', "someone"),
    ServedModel("true", "llamacpp"),
)


def test_any_served_name_becomes_a_valid_configuration(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(of_engine("http://127.0.0.1:8101/v1", SERVED, "env:KEY", {"qwen1.5": ["Qwen1.5-*"], "qwen": []}))
    result = read_configuration(file, {"KEY": "secret"})
    assert result.problems == ()
    assert result.snapshot is not None
    found = {name: model.targets[0] for name, model in result.snapshot.models.items()}
    assert [*found] == ["Qwen1.5-7B-Chat", "Qwen1.5-7B-Chat-2", 'my-model:-7"b', "true"]
    assert [target.model for target in found.values()] == [model.name for model in SERVED]
    assert [target.engine for target in found.values()] == ["vllm", "vllm", "openai", "llamacpp"]


NAMES = {
    "internlm2-chat-7b": ["internlm2", "lazyllm-internlm2"],
    "internlm3-8b": [],
    "Qwen1.5-7B": ["qwen1.5"],
    "vicuna-7b-v1.5": ["vicuna"],
}


@pytest.mark.parametrize("served_name", NAMES)
def test_a_template_is_proposed_if_its_name_is_a_part_of_the_models_name(served_name: str) -> None:
    templates = ["internlm", "internlm2", "lazyllm-internlm2", "qwen", "qwen1.5", "vicuna"]
    assert named_in(served_name, templates) == NAMES[served_name]


# ---------------------------------------------------------------- demo


def test_the_demo_is_copied_once_and_never_over_a_configuration(tmp_path: Path) -> None:
    copy_demo(tmp_path / "new")
    assert (tmp_path / "new/gateway.yaml").read_bytes() == (ROOT / "gateway.yaml").read_bytes()
    assert {path.name for path in (tmp_path / "new").iterdir()} == {name.partition("/")[0] for name in DEMO}
    copy, shipped = (folder / "meta_templates/sft-demo.yaml" for folder in (tmp_path / "new", ROOT))
    assert copy.read_bytes() == shipped.read_bytes()
    assert command(tmp_path / "new", "check").returncode == 0
    (tmp_path / "gateway.yaml").write_text("mine")
    copy_demo(tmp_path)
    (tmp_path / "new/gateway.yaml").unlink()
    with pytest.raises(CommandError, match="prompts exists and is not overwritten"):
        copy_demo(tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {"gateway.yaml", "new"}


def test_the_demo_is_written_and_not_served(tmp_path: Path) -> None:
    written = command(tmp_path, "demo", "new", "--no-serve")
    assert (written.returncode, written.stderr) == (0, b"note: the demo's files are in new\n")
    assert load(tmp_path / "new/gateway.yaml", {}).server.port == 8000
    nowhere = command(tmp_path, "demo", "--no-serve")
    assert (nowhere.returncode, nowhere.stderr[:32]) == (2, b"error: --no-serve needs FOLDER\nh")


# ---------------------------------------------------------------- check --live

LIVE = {
    "a model that is served": ("", "", None),
    "an unknown model": ("", ", model: demmo", '.model: URL does not serve "demmo" (did you mean "demo"?); set model'),
    "a BOS that is declared": ("", ", adds_bos: true", None),
    "a BOS that is denied": ("", ", adds_bos: false", ".adds_bos: is false, but the engine puts the BOS <s> before"),
    "a wrong key": ("", ', key: "env:WRONG"', ".key: URL refuses the key; check its value"),
    "no key": ("", ", key: null", '.key: URL refuses the key; set key: "env:NAME"'),
    "a wrong path": ("/v2", "", ".url: URL has no /models; the url usually ends in /v1"),
    "no server": ("http://127.0.0.1:9/v1", "", ".url: URL: "),
}


def test_a_live_check_names_the_setting_that_is_wrong(served: Gateway, tmp_path: Path) -> None:
    lines, expected = ["models:", "  m:", "    template: sft-demo", "    targets:"], []
    for number, (address, more, told) in enumerate(LIVE.values()):
        url = address if "//" in address else served.root + (address or "/v1")
        settings = {"speaks": "completions", "url": f'"{url}"', "model": "demo", "engine": "vllm", "key": '"env:KEY"'}
        settings |= dict(one.split(": ") for one in more.split(", ")[1:])
        shown = ", ".join([f"{key}: {value}" for key, value in settings.items() if value != "null"])
        lines.append(f"      - {{{shown}}}")
        if told is not None:
            expected.append(f"gateway.yaml:{number + 5} models.m.targets[{number}]{told.replace('URL', url)}")
    (tmp_path / "gateway.yaml").write_text("\n".join(lines))
    ended = command(tmp_path, "check", "--live", KEY=KEYS["open"], WRONG="wrong")
    problems = ended.stderr.decode().splitlines()
    assert ended.returncode == 1
    assert problems[-1] == f"{len(expected)} problems"
    for problem, told in zip(problems, expected, strict=False):
        assert problem.startswith(told)
    assert "m/0  serves demo; puts the BOS <s> before a prompt" in ended.stdout.decode().splitlines()


@pytest.mark.parametrize(
    ("engine", "owner", "phrase"),
    [
        ("llamacpp", "me", "; it looks like engine: llamacpp-python, not llamacpp"),
        ("llamacpp-python", "llamacpp", "; it looks like engine: llamacpp, not llamacpp-python"),
        ("llamacpp", "llamacpp", ""),
        ("llamacpp-python", "me", ""),
        ("llamacpp", "somebody", ""),
        ("vllm", "me", ""),
    ],
)
def test_the_live_check_names_the_other_server_of_llamacpp(engine: Engine, owner: str, phrase: str) -> None:
    assert other_llamacpp(engine, owner) == phrase
