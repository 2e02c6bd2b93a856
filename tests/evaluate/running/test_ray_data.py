"""``--engine ray`` on a local Ray, where Ray is installed; a clear message where it is not."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.process import environment, run
from tests.journeys.run_reports import ROWS, ask_all_rows, assert_each_row_once, reports, write_rows
from tests.support.serving import ROOT, WAIT_SECONDS, eventually

CONFIG = "models: {talk: {template: sft-demo, targets: [{speaks: scripted, script: hello.yaml}]}}\n"
RUN = ("run", "data.jsonl", "--out", "out.jsonl", "--engine", "ray")
HAS_RAY = importlib.util.find_spec("ray") is not None
NO_RAY = (
    "Ray is not in this environment; .ci/run runs this file with .venv-ray (tests/evaluate/running/environment/install)"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"model": "talk", "messages": [{"role": "user", "content": "hi"}]}] * 600
    (tmp_path / "data.jsonl").write_text("\n".join([json.dumps(row) for row in rows]))
    (tmp_path / "hello.yaml").write_text("[Hello, {finish: stop}]\n")
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    return tmp_path


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_a_missing_ray_is_named(folder: Path) -> None:
    ended = run(folder, *RUN)
    assert ended.returncode == 2
    assert ended.stderr.endswith(b"--engine ray needs Ray: pip install \"ray[data]\" (No module named 'ray')\n")


def test_a_ray_that_cannot_be_imported_is_one_line_with_the_reason(folder: Path) -> None:
    (folder / "broken" / "ray").mkdir(parents=True)
    (folder / "broken" / "ray" / "__init__.py").write_text('raise ImportError("numpy is too old\\nSee the manual")')
    ended = run(folder, *RUN, PYTHONPATH=f"{folder / 'broken'}{os.pathsep}{ROOT}")
    assert ended.returncode == 2
    assert b"Traceback" not in ended.stderr
    assert ended.stderr.endswith(b'--engine ray needs Ray: pip install "ray[data]" (numpy is too old)\n')


@pytest.mark.skipif(not HAS_RAY, reason=NO_RAY)
def test_a_ray_that_cannot_start_is_one_line_with_the_reason(folder: Path) -> None:
    """Ray's sockets are files in its folder, and the address of a socket has at most 107 bytes."""
    ended = run(folder, *RUN, RAY_TMPDIR=str(folder / ("x" * 120)), RAY_USAGE_STATS_ENABLED="0")
    assert ended.returncode == 1
    assert b"Traceback" not in ended.stderr
    assert b"Ray did not start (" in ended.stderr.splitlines()[-1]
    assert ended.stderr.endswith(b"); no row was sent\n")


@pytest.mark.skipif(not HAS_RAY, reason=NO_RAY)
def test_ray_asks_for_every_row_once(folder: Path) -> None:
    ended = run(folder, *RUN, RAY_USAGE_STATS_ENABLED="0")
    assert ended.returncode == 0, ended.stderr.decode()
    ids = Counter(json.loads(line)["custom_id"] for line in (folder / "out.jsonl").read_bytes().splitlines())
    assert ids == Counter(f"line-{n}" for n in range(1, 601))


QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(ROOT)}
"""The environment of a cluster's processes."""


@pytest.mark.skipif(not HAS_RAY, reason=NO_RAY)
def test_one_of_two_nodes_is_killed_and_each_row_is_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    from ray.cluster_utils import Cluster

    write_rows(tmp_path, pause=0.05)
    out = tmp_path / "ray.jsonl"
    rows = ("--model", "talk", "--keep", "answer", "--out", out.name)
    words = [sys.executable, "-m", "gateway", "run", "data.jsonl", *rows, "--engine", "ray", "--concurrency", "8"]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        settings: dict[str, Any] = {"cwd": tmp_path, "env": environment(**QUIET, RAY_ADDRESS=cluster.address)}
        node = cluster.add_node(num_cpus=1)
        with (tmp_path / "stderr.log").open("wb") as log:
            process = subprocess.Popen(words, stderr=log, **settings)
        assert eventually(lambda: out.exists() and out.read_bytes().count(b"\n") > 0)
        cluster.remove_node(node, allow_graceful=False)
        assert process.wait(WAIT_SECONDS) == 1
        printed = (tmp_path / "stderr.log").read_text()
        assert re.search(r"^error: the run on Ray ended early \(.+\); the same command continues it$", printed, re.M)
        assert 0 < out.read_bytes().count(b"\n") < ROWS
        cluster.wait_for_nodes(WAIT_SECONDS)  # Ray knows that the node is dead
        again = subprocess.run(words, capture_output=True, timeout=WAIT_SECONDS, check=False, **settings)
        assert again.returncode == 0, again.stderr.decode()
    finally:
        cluster.shutdown()
    assert_each_row_once(out)
    lines = sorted(out.read_bytes().splitlines(keepends=True), key=lambda line: json.loads(line)["gateway"]["line"])
    out.write_bytes(b"".join(lines))  # the order of the data, which the reports below show
    write_rows(tmp_path, pause=0)
    ask_all_rows(tmp_path, "talk", "single.jsonl")
    ask_all_rows(tmp_path, "other", "other.jsonl")
    assert reports(tmp_path, "ray.jsonl", "other.jsonl") == reports(tmp_path, "single.jsonl", "other.jsonl")
