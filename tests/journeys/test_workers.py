"""Several worker processes on one port act as one gateway for clients and Prometheus."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.journeys.process import Process, serving
from tests.journeys.workers import (
    BODY,
    CALLS,
    ENDLESS,
    FILES,
    connections,
    files,
    holders,
    metrics,
    one_on_each,
    value,
    workers,
)
from tests.support.serving import eventually

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the tests look for workers in /proc")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("workers"), FILES) as process:
        yield process


def test_two_workers_answer_on_one_port(running: Process) -> None:
    assert len(workers(running)) == 2
    with connections(running, 24):
        held = holders(running)
    assert sum(held.values()) >= 24
    assert all(held.values())


def test_the_start_message_is_printed_once_with_the_supervisors_pid(running: Process) -> None:
    assert running.log.count("serving first, slow at ") == 1
    assert f"(process {running.process.pid}, " in running.log
    assert ", 2 workers)" in running.log


def test_each_worker_returns_the_same_model_entry(running: Process) -> None:
    with one_on_each(running) as held:
        cards = [clients[0].get("/v1/models").content for clients in held.values()]
    assert cards[0] == cards[1]


def test_each_worker_returns_the_metrics_of_all(running: Process) -> None:
    with one_on_each(running) as held:
        (one, *_), (other, *_) = held.values()
        before = metrics(one)
        for number in range(200):
            client = other if number % 2 else one
            assert client.post(CALLS, json=BODY).status_code == 200
        current = [metrics(one), metrics(other)]
    for after in current:
        moved = {key: after[key] - before.get(key, 0.0) for key in after}
        assert moved["gateway_requests_total", (("endpoint", "chat"), ("model", "first"), ("outcome", "ok"))] == 200
        assert (
            moved["gateway_request_seconds_count", (("endpoint", "chat"), ("model", "first"), ("stream", "false"))]
            == 200
        )
        bucket = (("endpoint", "chat"), ("le", "+Inf"), ("model", "first"), ("stream", "false"))
        assert moved["gateway_overhead_seconds_bucket", bucket] == 200
        assert not any(value for (name, _), value in after.items() if name == "gateway_in_flight")
        assert after["gateway_workers", ()] == 2
        assert [value for (name, _), value in after.items() if name == "gateway_build_info"] == [1]


def test_memory_is_summed_and_open_files_are_those_of_the_fullest_process(running: Process) -> None:
    def is_right() -> bool:
        """Compare once. A connection of an earlier test may close between the two readings."""
        sizes, opened = {"VmRSS": 0, "VmSize": 0}, []
        for pid in [running.process.pid, *workers(running)]:
            status = Path(f"/proc/{pid}/status").read_text()
            for name in sizes:
                sizes[name] += int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]
            opened.append(len(list(Path(f"/proc/{pid}/fd").iterdir())))
        return (
            value(running.http, "process_virtual_memory_bytes") == pytest.approx(sizes["VmSize"], rel=0.1)
            and value(running.http, "process_resident_memory_bytes") == pytest.approx(sizes["VmRSS"], rel=0.1)
            and value(running.http, "process_open_fds") == pytest.approx(max(opened), abs=4)
        )

    assert eventually(is_right)
    assert value(running.http, "process_start_time_seconds") <= time.time()


def test_log_lines_of_both_workers_are_not_mixed(running: Process) -> None:
    logged = len(running.log)
    with one_on_each(running) as held, ThreadPoolExecutor(2) as pool:
        for answers in pool.map(lambda clients: [clients[0].post(CALLS, json=BODY) for _ in range(100)], held.values()):
            assert {answer.status_code for answer in answers} == {200}
    assert eventually(lambda: len(running.log[logged:].splitlines()) >= 216)
    lines = running.log[logged:].splitlines()
    whole = re.compile(r"[-0-9]{10} [:,0-9]{12} INFO req_[0-9a-f]{32} chat model=first status=200 outcome=ok .*\?\+\?")
    assert [line for line in lines if not whole.fullmatch(line)] == []


def test_the_limit_of_concurrent_calls_is_divided_between_workers(tmp_path: Path) -> None:
    endless = {**files("workers: 2, max_in_flight: 3"), "slow.yaml": ENDLESS}
    body = {**BODY, "model": "slow", "stream": True}
    with serving(tmp_path, endless) as process, one_on_each(process) as held, ExitStack() as streams:
        clients = [client for of_worker in held.values() for client in of_worker]
        answers = [streams.enter_context(client.stream("POST", CALLS, json=body)) for client in clients]
        assert Counter(answer.status_code for answer in answers) == {200: 3, 503: len(clients) - 3}
