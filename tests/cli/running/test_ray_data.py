"""``--engine ray`` on a local Ray, where Ray is installed; a clear message where it is not."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.journeys.process import run

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
    assert ended.stderr.endswith(b'--engine ray needs Ray: pip install "ray[data]"\n')


@pytest.mark.skipif(not HAS_RAY, reason='Ray is not installed here (pip install "ray[data]")')
def test_ray_asks_for_every_row_once(folder: Path) -> None:
    ended = run(folder, *RUN, RAY_USAGE_STATS_ENABLED="0")
    assert ended.returncode == 0, ended.stderr.decode()
    ids = Counter(json.loads(line)["custom_id"] for line in (folder / "out.jsonl").read_bytes().splitlines())
    assert ids == Counter(f"line-{n}" for n in range(1, 601))
