"""Rolling restarts lose no call. ``scripts/rolling-restarts`` makes twenty of them."""

from __future__ import annotations

from pathlib import Path

from tests.deploy.kubernetes.rollouts import SCRIPTS, restart


def test_two_rolling_restarts_under_load_lose_no_call(tmp_path: Path) -> None:
    outcome, ended = restart(tmp_path, 2)
    assert (outcome.lost, outcome.cut) == ([], [])
    assert {*outcome.complete} == {f"{model} {form}" for model in SCRIPTS for form in ("whole", "streamed")}
    assert len(ended) == 4
    for pod in ended:
        assert not pod.hung, "no liveness probe has failed"
        assert "every call has ended" in pod.log
