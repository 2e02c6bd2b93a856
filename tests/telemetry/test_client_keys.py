"""Metrics and log lines name the key of a call as it is named in the key file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.load import load
from tests.support.serving import Gateway, eventually, gateway, write_files
from tests.support.world import key_file

MODELS = "models: {m: {template: chat, policy: kept, targets: [{speaks: scripted, script: hello.yaml}]}}\n"


def files(*names: str) -> dict[str, str]:
    """The files beside ``gateway.yaml``. A client sends the name of a key as the key."""
    return {
        "policies/kept.yaml": "cache: {mode: 'on'}\n",
        "hello.yaml": "[Hello, {finish: stop}, {usage: [7, 2]}]\n",
        "keys.yaml": key_file(dict.fromkeys(names, "")),
    }


def ask(served: Gateway, key: str, model: str = "m") -> int:
    return served.chat(model, key=key).status_code


def test_calls_are_counted_for_their_key_until_the_file_has_too_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = "keys: {file: keys.yaml, max_in_metrics: %d}\n" + MODELS
    with (
        caplog.at_level("INFO", "gateway.calls"),
        gateway(tmp_path, config % 2, files=files("team-a", "team-b")) as served,
    ):
        assert [ask(served, "team-a"), ask(served, "team-a"), ask(served, "team-a", "other")] == [200, 200, 404]
        assert ask(served, "wrong") == 401
        (tmp_path / "gateway.yaml").write_text(config % 1)
        assert served.reload()
        assert ask(served, "team-b") == 200
        assert served.wait_until_idle()
        assert eventually(lambda: len(caplog.messages) == 5)
        series = served.runtime.metrics.snapshot().series
    assert series["gateway_key_requests_total"] == {
        ("team-a", "m", "ok"): [2],
        ("team-a", "unknown", "model_not_found"): [1],
    }
    assert series["gateway_key_tokens_total"]["team-a", "m", "completion"] == [4]
    ends = [line.partition(" tokens=")[2].split(" error=")[0].split(" ", 1)[1:] for line in caplog.messages]
    assert ends == [
        ["key=team-a cache=miss"],
        ["key=team-a cache=hit"],
        ["key=team-a"],
        [],
        ["key=team-b cache=miss"],
    ]


@pytest.mark.parametrize(
    ("setting", "keys", "labels"),
    [("", 50, True), ("", 51, False), (", max_in_metrics: 51", 51, True), (", max_in_metrics: 0", 1, False)],
)
def test_metrics_name_the_keys_of_a_file_with_at_most_max_in_metrics(
    tmp_path: Path, setting: str, keys: int, labels: bool
) -> None:
    config = f"keys: {{file: keys.yaml{setting}}}\n{MODELS}"
    write_files(tmp_path, {**files(*[f"key-{number}" for number in range(keys)]), "gateway.yaml": config})
    assert load(tmp_path / "gateway.yaml", {}).key_labels is labels
