"""The manifest: what a run is, and what its output holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.options import CommandError
from gateway.evaluate.running.manifest import Manifest, differences, quantiles, summarise


def line(status: int | None = 200, *, body: Any = None, error: Any = None, **gateway: Any) -> bytes:
    response = None if status is None else {"status_code": status, "body": body or {}}
    provenance = {"retries": 0, "seconds": 0.5, **gateway}
    return json.dumps({"custom_id": "a", "response": response, "error": error, "gateway": provenance}).encode() + b"\n"


def test_the_results_are_counted_from_the_output() -> None:
    answer = {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    route: dict[str, Any] = {"model": "m", "template": "t@sha256:1", "policy": "eval", "target": "m/0"}
    lines = [
        line(body=answer, attempts=2, notices=["default_parameter: seed=1", "split_calls"], **route),
        line(body=answer, attempts=1, retries=3, seconds=1.5, **{**route, "target": "m/1"}),
        line(502, body={"error": {"code": "upstream_error"}}, attempts=1, **route),
        line(404, body="<html>"),
        line(None, error={"code": "timeout"}),
    ]
    assert summarise(iter(lines)) == {
        "rows": 5,
        "answered": 2,
        "failed": 3,
        "attempts": 4,
        "retries": 3,
        "models": {
            "m": {
                "templates": {"t@sha256:1": 3},
                "dataset_prompts": {},
                "policies": {"eval": 3},
                "targets": {"m/0": 2, "m/1": 1},
            },
            "unknown": {"templates": {}, "dataset_prompts": {}, "policies": {}, "targets": {}},
        },
        "notices": {"default_parameter": 1, "split_calls": 1},
        "statuses": {"200": 2, "502": 1, "404": 1},
        "errors": {"upstream_error": 1, "no_code": 1, "timeout": 1},
        "first_error": "a: upstream_error: ",
        "finish_reasons": {"stop": 2},
        "classes": {"failed": 3, "empty": 2},
        "unchecked_tool_calls": 0,
        "tokens": {"prompt_tokens": 6, "completion_tokens": 4},
        "latency_seconds": {"p50": 0.5, "p90": 1.5, "p99": 1.5, "max": 1.5},
    }


def test_the_results_of_one_row_are_numbers() -> None:
    found = summarise(iter([line()]))
    assert json.dumps([found["rows"], found["answered"], found["failed"]]) == "[1, 1, 0]"


def test_quantiles_have_the_nearest_rank() -> None:
    assert quantiles(range(101)) == {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    assert quantiles([]) == {}


def test_differences_name_each_changed_value() -> None:
    old = {"a": 1, "b": {"c": "x", "d": [1]}, "e": None}
    new = {"a": 1, "b": {"c": "y", "d": [2]}, "f": 0}
    assert list(differences(old, new)) == ['b.c: "x" → "y"', "b.d: [1] → [2]", "f: null → 0"]


def written(folder: Path) -> Any:
    return json.loads((folder / "out.manifest.json").read_text())


def test_a_changed_run_is_refused_unless_changes_are_allowed(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    Manifest(out, {"model": "a"}, {}).begin(0, allow_changes=False)
    before = written(tmp_path)
    changed = Manifest(out, {"model": "b"}, {})
    with pytest.raises(CommandError, match='model: "a" → "b"') as refused:
        changed.begin(5, allow_changes=False)
    assert "--allow-changes" in str(refused.value)
    assert written(tmp_path) == before
    changed.begin(5, allow_changes=True)
    assert [run["changes"] for run in written(tmp_path)["runs"]] == [[], ['model: "a" → "b"']]


def test_a_run_without_rows_yet_may_change(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    Manifest(out, {"model": "a"}, {}).begin(0, allow_changes=False)
    Manifest(out, {"model": "b"}, {}).begin(0, allow_changes=False)
    assert (written(tmp_path)["identity"], len(written(tmp_path)["runs"])) == ({"model": "b"}, 1)


@pytest.mark.parametrize("content", ["", "[]", "5", "{}"])
def test_a_file_that_is_no_manifest_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "out.manifest.json").write_text(content)
    with pytest.raises(CommandError, match="not a manifest"):
        Manifest(tmp_path / "out.jsonl", {}, {}).begin(1, allow_changes=False)
    assert (tmp_path / "out.manifest.json").read_text() == content
