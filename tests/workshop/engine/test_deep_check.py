"""``gateway check --live --deep`` names the one lie of an engine, and nothing of an honest one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.workshop.engine.deep_check import PROBES, REQUESTS
from gateway.workshop.engine.fingerprint import FORMAT, SAME_MODEL
from tests.cli.command import command
from tests.journeys.process import environment
from tests.support.serving import ROOT, WAIT_SECONDS, eventually, write_files
from tests.workshop.engine.lying_engine import LyingEngine, served

CONFIG = """\
models:
  tiny:
    template: sft-demo
    tokenizer: {root}/demo/model
    targets:
      - speaks: completions
        url: "{url}"
        engine: {engine}
"""


def deep(folder: Path, engine: LyingEngine, *arguments: str, url: bool = False, **env: Any) -> tuple[int, Any]:
    """Check an engine as a configured model, or at its address. Returns the exit code, and the report or the error."""
    with served(engine) as address:
        name = {"vllm": "vllm", "llamacpp": "llamacpp", "openai": "openai"}[engine.kind]
        write_files(folder, {"gateway.yaml": CONFIG.format(root=ROOT, url=address, engine=name)})
        subject = address if url else "tiny"
        ended = command(folder, "check", "--live", "--deep", subject, "--json", *arguments, **env)
    assert b"Traceback" not in ended.stderr
    return ended.returncode, json.loads(ended.stdout) if ended.stdout else ended.stderr.decode()


def red(report: Any) -> dict[str, str]:
    """The probes that differ, with their evidence."""
    return {one["probe"]: one["evidence"] for one in report["probes"] if one["verdict"] == "differs"}


def saved(**changed: Any) -> str:
    """The text of a saved report, with other fields, or other fields of its fingerprint."""
    fingerprint = {name: changed.pop(name, value) for name, value in (("way", "echo"), ("texts", [[["a", -1.0]]] * 3))}
    return json.dumps({"format": FORMAT, "model": "tiny", **changed, "fingerprint": fingerprint})


@pytest.mark.parametrize("url", [False, True])
@pytest.mark.parametrize("kind", ["vllm", "llamacpp", "openai"])
def test_an_honest_engine_has_no_red_line(tmp_path: Path, kind: str, url: bool) -> None:
    engine = LyingEngine(kind)
    code, report = deep(tmp_path, engine, url=url)
    assert (red(report), code) == ({}, 0)
    assert len(engine.requests) == report["requests"] <= REQUESTS <= 60
    assert all(body.get("max_tokens", 1) <= 16 for path, body in engine.requests if body and "completions" in path)


LIES: dict[str, tuple[str, set[str], str]] = {
    # lie: the kind of engine, the probes that differ, and words of the evidence
    "template": ("vllm", {"chat prompt"}, "token 3 is"),
    "chat bos": ("vllm", {"chat prompt"}, "BOS at the start: 1 and 2"),
    "string bos": ("vllm", {"string prompt"}, "BOS at the start: 1 and 2"),
    "ids bos": ("vllm", {"token prompt"}, "BOS at the start: 1 and 2"),
    "noise": ("vllm", {"temperature 0"}, "should be"),
    "temperature": ("vllm", {"temperature"}, "equal that at temperature 0"),
    "seed": ("vllm", {"seed"}, "should be"),
    "one seed": ("vllm", {"seed"}, "[1, 2, 3] give one answer"),
    "stream text": ("vllm", {"stream"}, "streamed"),
    "stream usage": ("vllm", {"stream"}, "17"),
    "max_tokens": ("vllm", {"max_tokens"}, "gives 9 tokens"),
    "usage": ("vllm", {"usage"}, "has usage (21, 2)"),
    "stop": ("vllm", {"stop", "stop in a stream"}, "finish_reason length"),
    "stop kept": ("vllm", {"stop", "stop in a stream"}, "finish_reason stop"),
    "stop reason": ("vllm", {"stop", "stop in a stream"}, "finish_reason length"),
    "late stop": ("vllm", {"stop in a stream"}, "and not"),
    "stop_token_ids": ("vllm", {"stop_token_ids"}, "finish_reason length"),
    "schema": ("vllm", {"json schema"}, "gateway-7"),
    "n": ("vllm", {"n"}, "2 gives 1"),
    "logit_bias": ("vllm", {"logit_bias"}, "unchanged"),
    "top_p": ("vllm", {"top_p"}, "'top_p': 1e-06"),
    "top_k": ("vllm", {"top_k"}, "'top_k': 1"),
    "min_p": ("vllm", {"min_p"}, "'min_p': 1.0"),
    "frequency_penalty": ("vllm", {"frequency_penalty"}, "should not be"),
    "repetition_penalty": ("vllm", {"repetition_penalty"}, "should not be"),
}
OTHERS: dict[str, tuple[str, set[str], str]] = {
    "template": ("llamacpp", {"chat prompt"}, "token 3 is"),
    "string bos": ("llamacpp", {"chat prompt", "string prompt"}, "BOS at the start: 1 and 2"),
    "repeat_penalty": ("llamacpp", {"repeat_penalty"}, "should not be"),
}
COUNTED: dict[str, tuple[str, set[str], str]] = {
    "template": ("openai", {"chat prompt"}, "tokens for us"),
    "chat bos": ("openai", {"chat prompt"}, "tokens for us"),
    "string bos": ("openai", {"string prompt"}, "should have 1 BOS, and has 2"),
    "ids bos": ("openai", {"chat prompt", "token prompt"}, "64 for the engine"),
}


@pytest.mark.parametrize(
    ("lie", "expected"),
    [row for table in (LIES, OTHERS, COUNTED) for row in table.items()],
    ids=lambda one: one if isinstance(one, str) else one[0],
)
def test_a_lie_is_named(tmp_path: Path, lie: str, expected: tuple[str, set[str], str]) -> None:
    kind, probes, words = expected
    engine = LyingEngine(kind, lie)
    code, report = deep(tmp_path, engine)
    found = red(report)
    assert (set(found), code) == (probes, 1), report["probes"]
    assert words in " ".join(found.values())
    assert len(engine.requests) <= REQUESTS
    assert all(one["advice"] for one in report["probes"] if one["verdict"] == "differs")


def test_an_engine_with_chat_only_is_checked_by_chat_answers(tmp_path: Path) -> None:
    code, report = deep(tmp_path, LyingEngine("openai", "no completions"), url=True)
    verdicts = {one["probe"]: one["verdict"] for one in report["probes"]}
    assert (red(report), code) == ({}, 0)
    assert verdicts["max_tokens"] == verdicts["stop in a stream"] == "ok"


def test_an_engine_without_token_prompts_is_compared_by_strings(tmp_path: Path) -> None:
    code, report = deep(tmp_path, LyingEngine("openai", "strings only"))
    verdicts = {one["probe"]: one["verdict"] for one in report["probes"]}
    assert (red(report), code) == ({}, 0)
    assert (verdicts["token prompt"], verdicts["chat prompt"]) == ("could not check", "ok")


@pytest.mark.parametrize(
    ("lie", "words"),
    {"500": "status 500", "404": "", "html": "HTML", "hangs": "did not answer within 0.5 s"}.items(),
)
def test_an_engine_without_an_answer_is_no_result(tmp_path: Path, lie: str, words: str) -> None:
    engine = LyingEngine("openai", lie)
    code, error = deep(tmp_path, engine, "--timeout", "0.5", url=True)
    assert (code, len(engine.requests)) == (2, 1)
    assert "cannot be checked" in error
    assert words in error


def test_no_request_follows_two_without_an_answer(tmp_path: Path) -> None:
    engine = LyingEngine("vllm", "hangs later")
    code, report = deep(tmp_path, engine, "--timeout", "0.5", url=True)
    assert (code, red(report)) == (0, {})
    assert len(engine.requests) == 5 + 2
    assert any("not asked" in one["evidence"] for one in report["probes"])


def test_the_key_is_asked_for_and_is_nowhere(tmp_path: Path) -> None:
    engine = LyingEngine("openai", key="sk-secret")
    code, error = deep(tmp_path, engine, url=True)
    assert code == 2
    assert "give its key with --key env:NAME" in error
    file = tmp_path / "saved.json"
    code, _ = deep(tmp_path, engine, "--key", "env:KEY", "--save", str(file), url=True, KEY="sk-secret")
    assert code == 0
    assert "sk-secret" not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["vllm", "openai", "llamacpp"])
def test_other_weights_are_found_against_an_earlier_report(tmp_path: Path, kind: str) -> None:
    file = str(tmp_path / "saved.json")
    code, report = deep(tmp_path, LyingEngine(kind), "--save", file)
    assert code == 0
    assert report == json.loads(Path(file).read_text(encoding="utf-8"))
    code, report = deep(tmp_path, LyingEngine(kind), "--against", file)
    assert (code, red(report)) == (0, {})
    code, report = deep(tmp_path, LyingEngine(kind, weights=8), "--against", file)
    assert (code, set(red(report))) == (1, {"same model"})


@pytest.mark.parametrize(("drift", "code"), [(0.04, 0), (0.06, 1)])
def test_log_probabilities_have_a_tolerance(tmp_path: Path, drift: float, code: int) -> None:
    file = str(tmp_path / "saved.json")
    deep(tmp_path, LyingEngine("vllm"), "--save", file)
    found, report = deep(tmp_path, LyingEngine("vllm", drift=drift), "--against", file)
    assert found == code
    assert f"at most {drift:.4f} (tolerance 0.25)" in report["probes"][-1]["evidence"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no", "is not a report of --save"),
        ("[]", "is not a report of --save"),
        (saved(format="other"), "make it again with --save"),
        (saved(texts=[]), "make it again with --save"),
        (saved(texts=[[], [], []]), "make it again with --save"),
        (saved(texts=[1, 2, 3]), "is not a report of --save"),
        (saved(texts=[[["a", "b"]]] * 3), "is not a report of --save"),
        (saved(way=None), "make it again with --save"),
        (saved()[:-9], "is not a report of --save"),
    ],
)
def test_a_damaged_file_is_refused_before_the_first_request(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "old.json").write_text(text, encoding="utf-8")
    engine = LyingEngine("vllm")
    code, error = deep(tmp_path, engine, "--against", "old.json")
    assert (code, engine.requests) == (2, [])
    assert words in error


def test_a_report_on_another_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(saved(model="b"), encoding="utf-8")
    code, error = deep(tmp_path, LyingEngine("vllm"), "--against", "old.json", url=True)
    assert code == 2
    assert "the report is about b, not about tiny" in error


@pytest.mark.parametrize("file", ["missing/report.json", ".", "gateway.yaml/report.json"])
def test_a_file_that_cannot_be_written_is_refused_before_the_first_request(tmp_path: Path, file: str) -> None:
    engine = LyingEngine("vllm")
    code, error = deep(tmp_path, engine, "--save", file)
    assert (code, engine.requests) == (2, [])
    assert f"--save {file} cannot be written" in error


@pytest.mark.parametrize("lie", ["", "max_tokens", "six more"])
def test_without_usage_max_tokens_is_counted_by_the_pieces_of_a_stream(tmp_path: Path, lie: str) -> None:
    engine = LyingEngine("openai", lie, usage=False)
    code, report = deep(tmp_path, engine, url=True)
    assert (set(red(report)), code) == (({"max_tokens"}, 1) if lie else (set(), 0))
    (evidence,) = [one["evidence"] for one in report["probes"] if one["probe"] == "max_tokens"]
    assert "tokens" not in evidence
    assert f"gives {'not ' if lie else ''}the text of" in evidence


def test_the_targets_that_are_not_checked_are_named(tmp_path: Path) -> None:
    two = 2 * '      - {speaks: completions, url: "http://127.0.0.1:9/v1"}\n'
    with served(LyingEngine("vllm")) as address:
        write_files(tmp_path, {"gateway.yaml": CONFIG.format(root=ROOT, url=address, engine="vllm") + two})
        ended = command(tmp_path, "check", "--live", "--deep", "tiny", "--save", "a.json")
    assert ended.stdout.decode().splitlines()[2:4] == ["target  tiny/0", "unchecked tiny/1, tiny/2"]
    report = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert (report["target"], report["unchecked"]) == ("tiny/0", ["tiny/1", "tiny/2"])


def test_a_bos_that_the_gateway_does_not_know_is_not_counted(tmp_path: Path) -> None:
    tokenizer = json.loads((ROOT / "demo/model/tokenizer.json").read_text(encoding="utf-8"))
    write_files(tmp_path, {"demo/model/tokenizer.json": json.dumps({**tokenizer, "post_processor": None})})
    with served(LyingEngine("vllm")) as address:
        write_files(tmp_path, {"gateway.yaml": CONFIG.format(root=tmp_path, url=address, engine="vllm")})
        ended = command(tmp_path, "check", "--live", "--deep", "tiny", "--json")
    (chat,) = [one for one in json.loads(ended.stdout)["probes"] if one["probe"] == "chat prompt"]
    assert chat["verdict"] == "differs"
    assert chat["evidence"].endswith('1 "<s>" for the engine; BOS at the start: not known')
    assert chat["advice"].startswith("if this token is a BOS, correct adds_bos or bos of the template; ")


@pytest.mark.parametrize(("refused", "verdict"), [(2, "ok"), (3, "could not check")])
def test_refused_conversations_are_counted(tmp_path: Path, refused: int, verdict: str) -> None:
    _, report = deep(tmp_path, LyingEngine("vllm", refused=refused))
    (chat,) = [one for one in report["probes"] if one["probe"] == "chat prompt"]
    assert chat["verdict"] == verdict
    assert chat["evidence"].startswith(f"{5 - refused} of 5 conversations are not refused")


def test_a_quiet_check_prints_only_what_differs(tmp_path: Path) -> None:
    for lie, code, printed in (("", 0, False), ("top_k", 1, True)):
        with served(LyingEngine("vllm", lie)) as url:
            ended = command(tmp_path, "check", "--live", "-q", "--deep", url)
        assert (ended.returncode, bool(ended.stdout), ended.stderr) == (code, printed, b"")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--deep", "tiny"], "--deep needs --live"),
        (["--live", "--save", "a.json"], "--save, --against, --key and --timeout need --deep"),
        (["--timeout", "5"], "--save, --against, --key and --timeout need --deep"),
        (
            ["--live", "--deep", "tiny", "--key", "env:KEY"],
            "--key is for an address; the key of the model tiny is set in",
        ),
        (["--live", "--deep", "tinny"], 'did you mean "tiny"'),
        (["--live", "--deep", "local"], "there is no engine to ask"),
        (["--live", "--deep", "http://127.0.0.1:9/v1"], "does not accept connections"),
    ],
)
def test_a_wrong_command_line_is_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    local = "  local: {template: sft-demo, targets: [{speaks: scripted, script: hello.yaml}]}\n"
    config = CONFIG.format(root=ROOT, url="http://127.0.0.1:9/v1", engine="openai") + local
    write_files(tmp_path, {"gateway.yaml": config, "hello.yaml": "- {text: hi}\n"})
    ended = command(tmp_path, "check", *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr.decode()


def test_the_text_names_what_to_do(tmp_path: Path) -> None:
    with served(LyingEngine("vllm", "top_k")) as url:
        ended = command(tmp_path, "check", "--live", "--deep", url)
    lines = ended.stdout.decode().splitlines()
    assert ended.stderr.decode().startswith(f"at most {REQUESTS} requests, ")
    assert lines[:2] == ["model   tiny", "engine  vllm 1.2"]
    assert [line for line in lines if line.startswith("  top_k: the engine ignores this field")]
    assert lines[-1].startswith("20 probes: ")


def test_ctrl_c_ends_the_check(tmp_path: Path) -> None:
    engine = LyingEngine("vllm", "hangs later")
    with served(engine) as url:
        # A shell starts programs in the background with SIGINT ignored, and tests may run there; Python keeps that.
        program = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        main = "from gateway.cli import main; sys.exit(main())"
        words = [sys.executable, "-c", program + main, "check", "--live", "--deep", url]
        with subprocess.Popen(words, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE) as process:
            assert eventually(lambda: len(engine.requests) > 5)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_the_page_names_every_probe() -> None:
    page = (ROOT / "docs" / "engine-check.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {cell.strip(" `") for row in rows for cell in row.split(",")}
    assert {probe.name for probe in (*PROBES, SAME_MODEL)} <= named
