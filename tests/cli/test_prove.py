"""``gateway why --prove``: what a part of the requests of one run returns of the score of the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import command
from tests.support.serving import ROOT, Files, write_files
from tests.support.upstream.server import FaultyUpstream

ROWS = 24
CONFIG = """\
models:
  demo: {template: sft-demo, targets: [{speaks: embedded, path: model}]}
  spaced: {template: spaced, targets: [{speaks: embedded, path: model}]}
  messages: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}
  broken: {template: sft-demo, policy: once, targets: [{speaks: scripted, script: error.yaml}]}
  cached: {template: sft-demo, policy: cached, targets: [{speaks: scripted, script: hello.yaml}]}
"""
SPACED = (ROOT / "meta_templates" / "sft-demo.yaml").read_text(encoding="utf-8").replace("<HUMAN>: ", "<HUMAN>:")
FILES: Files = {
    "gateway.yaml": CONFIG,
    "model": ROOT / "demo/model",
    "meta_templates/spaced.yaml": SPACED,
    "hello.yaml": "[Hello, {finish: stop}]\n",
    "error.yaml": "[{error: upstream_error}]\n",
    "policies/once.yaml": "delivery: {retry: {attempts: 1}}\n",
    "policies/cached.yaml": "cache: {mode: on}\n",
}
A = {"model": "demo", "max_tokens": 8, "temperature": 0, "stop": ["5"]}
RUNS: dict[str, dict[str, Any]] = {
    "a": {},
    "prompt": {"model": "spaced"},
    "parameters": {"max_tokens": 1},
    "stops": {"stop": ["3"]},
    "two": {"max_tokens": 1, "stop": ["3"]},
    "question": {"messages": [{"role": "user", "content": "1+1=?"}]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run for each row of ``RUNS``."""
    folder = tmp_path_factory.mktemp("proof")
    write_files(folder, FILES)
    for name, changes in RUNS.items():
        rows = []
        for n in range(ROWS):
            question, answer = f"{n}+{n % 7}=?", str(n + n % 7).partition("5")[0]
            messages = [{"role": "user", "content": question}]
            rows.append({"custom_id": f"sum-{n}", "messages": messages, "answer": answer, **A, **changes})
        (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
        assert command(folder, "run", "data.jsonl", "--keep", "answer", "--out", f"{name}.jsonl").returncode == 0
    return folder


def why(folder: Path, run: str, *arguments: str) -> Any:
    ended = command(folder, "why", "a.jsonl", f"{run}.jsonl", "--score", "exact", *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("part", ["prompt", "parameters", "stops"])
def test_a_part_alone_returns_what_the_runs_differ(folder: Path, part: str) -> None:
    found = why(folder, part, "--prove", "demo")
    (name,) = found["proof"]["effects"]
    assert name == part
    assert found["difference"]["mean"] < -0.1
    assert found["proof"]["effects"][part]["mean"] == pytest.approx(-found["difference"]["mean"], abs=0.005)
    assert found["proof"]["controls_as_recorded"] == found["proof"]["controls"] == ROWS


def test_two_parts_are_sent_alone_and_together_and_the_calls_are_counted_first(folder: Path) -> None:
    found = why(folder, "two", "--prove", "demo/0")
    effects = found["proof"]["effects"]
    assert list(effects) == ["parameters", "stops", "all of these"]
    together = effects["all of these"]["mean"]
    assert together == pytest.approx(-found["difference"]["mean"], abs=0.005)
    assert effects["stops"]["mean"] < effects["parameters"]["mean"] < together
    ended = command(folder, "why", "a.jsonl", "two.jsonl", "--prove", "demo", "--prove-rows", "5")
    assert ended.stderr == b"note: --prove sends 20 calls to demo: 5 controls, and the others with parts of A\n"
    lines = ended.stdout.decode().splitlines()
    assert lines[-5].split() == [
        *("returned", "minus", "control", "rows", "sent", "rows", "that", "differ", "answers", "of", "A")
    ]
    assert [line.split()[:3] for line in lines[-4:-2]] == [["parameters", "5", "24"], ["stops", "5", "24"]]
    assert lines[-1] == "5 of 5 controls have the recorded answer of B"


def test_another_question_is_not_provable(folder: Path) -> None:
    ended = command(folder, "why", "a.jsonl", "question.jsonl", "--prove", "demo")
    assert b"--prove sends 0 calls to demo" in ended.stderr
    assert b"\nnot provable: 22 rows whose first difference is dataset row\n" in ended.stdout


def test_failed_calls_count_for_no_effect(folder: Path) -> None:
    proof = why(folder, "stops", "--prove", "broken")["proof"]
    assert (proof["controls"], proof["effects"]["stops"]["rows"]) == (0, 0)
    assert proof["failed_calls"] == {"upstream_error": 2 * ROWS}


def test_a_cache_does_not_answer_a_control(folder: Path) -> None:
    for _ in range(2):
        proof = why(folder, "stops", "--prove", "cached", "--prove-rows", "3")["proof"]
        assert (proof["controls"], proof["effects"]["stops"]["mean"]) == (3, 0.0)


def test_at_most_eight_calls_are_under_way(folder: Path, up: FaultyUpstream) -> None:
    config = f'models: {{m: {{template: sft-demo, targets: [{{speaks: completions, url: "{up.url("ok")}"}}]}}}}\n'
    (folder / "engine.yaml").write_text(config)
    before, asked = up.connections, up.request_count
    why(folder, "two", "--prove", "m", "--config", "engine.yaml")
    assert up.request_count - asked == 4 * ROWS
    assert 1 <= up.connections - before <= 8


WRONG = {
    "an unknown target": (("--prove", "dema"), 'no such model or target (did you mean "demo"?)'),
    "a target of another form": (("--prove", "messages"), "this model receives messages, unlike the recorded requests"),
    "one row": (("--prove", "demo", "--row", "sum-1"), "--row and --prove cannot be used together"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_proof_that_is_not_possible_is_refused(folder: Path, case: str) -> None:
    arguments, message = WRONG[case]
    ended = command(folder, "why", "a.jsonl", "stops.jsonl", *arguments)
    assert ended.returncode == 2
    assert message in ended.stderr.decode()


def test_a_run_without_a_recording_is_refused(folder: Path) -> None:
    (folder / "bare.jsonl").write_bytes((folder / "stops.jsonl").read_bytes())
    ended = command(folder, "why", "a.jsonl", "bare.jsonl", "--prove", "demo")
    assert (ended.returncode, b"bare.jsonl has no recording (bare.recording.sqlite)" in ended.stderr) == (2, True)
