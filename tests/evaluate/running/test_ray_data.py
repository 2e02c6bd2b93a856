"""``--engine ray`` on a local Ray, where Ray is installed; a clear message where it is not."""

from __future__ import annotations

import importlib.util
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.journeys.process import run
from tests.support.serving import ROOT

CONFIG = "models: {talk: {template: sft-demo, targets: [{speaks: scripted, script: hello.yaml}]}}\n"
RUN = ("run", "data.jsonl", "--out", "out.jsonl", "--engine", "ray")
HAS_RAY = importlib.util.find_spec("ray") is not None


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


@pytest.mark.skipif(not HAS_RAY, reason='Ray is not installed here (pip install "ray[data]")')
def test_a_ray_that_cannot_start_is_one_line_with_the_reason(folder: Path) -> None:
    """Ray's sockets are files in its folder, and the address of a socket has at most 107 bytes."""
    ended = run(folder, *RUN, RAY_TMPDIR=str(folder / ("x" * 120)), RAY_USAGE_STATS_ENABLED="0")
    assert ended.returncode == 1
    assert b"Traceback" not in ended.stderr
    assert b"Ray did not start (" in ended.stderr.splitlines()[-1]
    assert ended.stderr.endswith(b"); no row was sent\n")


@pytest.mark.skipif(not HAS_RAY, reason='Ray is not installed here (pip install "ray[data]")')
def test_ray_asks_for_every_row_once(folder: Path) -> None:
    ended = run(folder, *RUN, RAY_USAGE_STATS_ENABLED="0")
    assert ended.returncode == 0, ended.stderr.decode()
    ids = Counter(json.loads(line)["custom_id"] for line in (folder / "out.jsonl").read_bytes().splitlines())
    assert ids == Counter(f"line-{n}" for n in range(1, 601))
