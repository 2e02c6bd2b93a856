"""The number of cores that a container allows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gateway.config.schema.kinds import MOST_WORKERS, WORKERS, usable_cores

ALL = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1

QUOTAS = {  # cpu.max → cores
    "max 100000\n": ALL,
    "50000 100000\n": 1,
    "100000 100000\n": 1,
    "150000 100000\n": min(ALL, 2),
    "99900000 100000\n": ALL,
    "nonsense\n": ALL,
}


@pytest.mark.parametrize(("text", "cores"), QUOTAS.items(), ids=[text.strip() for text in QUOTAS])
def test_a_quota_is_rounded_up_to_whole_cores(tmp_path: Path, text: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path / "cpu.max") == cores


def test_without_a_quota_every_core_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "cpu.max") == ALL


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux only")
def test_auto_is_one_worker_for_each_usable_core() -> None:
    everywhere = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(everywhere)})
        assert (WORKERS.read("auto"), WORKERS.read(3)) == (1, 3)
    finally:
        os.sched_setaffinity(0, everywhere)
    assert 1 <= WORKERS.read("auto") <= MOST_WORKERS
