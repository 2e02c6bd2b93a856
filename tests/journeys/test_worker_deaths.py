"""Workers of one gateway reload together, and a worker that dies is replaced."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.journeys.process import Process, run, serving
from tests.journeys.workers import (
    BODY,
    CALLS,
    FILES,
    alive,
    answer_on,
    connections,
    files,
    holders,
    kill,
    metrics,
    one_on_each,
    restarted,
    served_by,
    value,
    workers,
)
from tests.support.ports import free_port
from tests.support.serving import ROOT, WAIT_SECONDS, eventually, write_files

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the tests look for workers in /proc")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("workers"), FILES) as process:
        yield process


# ---------------------------------------------------------------- reload


def edit(process: Process) -> str:
    """Write a configuration with the other script of the model ``first``; returns its answer."""
    name = "first" if "second.yaml" in (process.folder / "gateway.yaml").read_text() else "second"
    process.write("gateway.yaml", FILES["gateway.yaml"].replace("first.yaml", f"{name}.yaml"))
    return f"the {name}"


TRIGGERS: dict[str, Callable[[Process], object]] = {
    "SIGHUP to the supervisor": lambda process: process.signal(signal.SIGHUP),
    "SIGHUP to a worker": lambda process: os.kill(workers(process)[0], signal.SIGHUP),
    "a changed file": lambda process: None,
}


@pytest.mark.parametrize("trigger", TRIGGERS.values(), ids=TRIGGERS)
def test_a_configuration_is_reloaded_by_all_workers(running: Process, trigger: Callable[[Process], object]) -> None:
    with one_on_each(running) as held:
        answer = edit(running)
        trigger(running)
        clients = [client for clients in held.values() for client in clients]
        assert eventually(lambda: {answer_on(client) for client in clients} == {answer}), running.log


def test_a_refused_reload_changes_no_worker(running: Process) -> None:
    answer = edit(running)
    running.reload("ok")
    with one_on_each(running) as held:
        running.write("gateway.yaml", "models: 5\n")
        running.reload("error")
        assert {answer_on(client) for clients in held.values() for client in clients} == {answer}
    assert eventually(lambda: running.log.count("reload refused") == running.reloads("error"))
    kill(running, workers(running)[0])
    assert served_by(running, 2), running.log
    with one_on_each(running) as held:  # the new worker too serves the accepted configuration
        assert {answer_on(client) for clients in held.values() for client in clients} == {answer}
    edit(running)
    running.reload("ok")


def test_a_worker_that_dies_during_a_reload_does_not_hide_its_result(running: Process) -> None:
    for pause in (0.0, 0.005, 0.02):
        logged = len(running.log)
        running.write("gateway.yaml", "models: 5\n")
        running.signal(signal.SIGHUP)
        time.sleep(pause)
        os.kill(min(workers(running)), signal.SIGKILL)
        assert eventually(lambda logged=logged: "reload refused" in running.log[logged:]), running.log
        running.write("gateway.yaml", FILES["gateway.yaml"])
        running.signal(signal.SIGHUP)
        assert served_by(running, 2), running.log
        with one_on_each(running) as held:
            clients = [client for clients in held.values() for client in clients]
            every = partial(map, answer_on, clients)
            assert eventually(lambda every=every: set(every()) == {"the first"}), running.log
        assert "Traceback" not in running.log


# ---------------------------------------------------------------- deaths


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Process]:
    """A gateway without earlier deaths, after which it would wait before it starts a worker again."""
    with serving(tmp_path, FILES) as process:
        yield process


def test_a_killed_worker_is_replaced_while_the_other_serves(fresh: Process) -> None:
    stop = threading.Event()
    answered: Counter[str] = Counter()

    def ask() -> None:
        """One call on each connection: calls at the dead worker may fail, but no connection may be refused."""
        while not stop.is_set():
            try:
                answer = httpx.post(
                    f"http://127.0.0.1:{fresh.port}{CALLS}", json=BODY, timeout=30, trust_env=False, verify=False
                )
                answered[str(answer.status_code)] += 1
            except httpx.TransportError as error:
                answered[type(error).__name__] += 1

    restarts = value(fresh.http, "gateway_worker_restarts_total")
    threads = [threading.Thread(target=ask) for _ in range(4)]
    with one_on_each(fresh) as held:
        for thread in threads:
            thread.start()
        try:
            time.sleep(0.3)
            victim, survivor = held
            seen = metrics(held[survivor][0])
            os.kill(victim, signal.SIGKILL)
            killed = time.monotonic()
            whole = False
            while not whole and time.monotonic() - killed < WAIT_SECONDS:
                assert answer_on(held[survivor][0]) == "the first"
                current = metrics(held[survivor][0])
                back = [
                    key
                    for key, was in seen.items()
                    if key[0].endswith(("_total", "_count", "_bucket")) and current[key] < was
                ]
                assert back == []
                seen = current
                whole = (
                    current["gateway_workers", ()] == 2 and current["gateway_worker_restarts_total", ()] == restarts + 1
                )
            assert whole, fresh.log
            assert victim not in workers(fresh)
            assert len(workers(fresh)) == 2
        finally:  # so that a failed test ends
            stop.set()
            for thread in threads:
                thread.join(WAIT_SECONDS)
    assert answered["200"] >= len(threads)
    assert "ConnectError" not in answered, answered
    assert sum(number for kind, number in answered.items() if kind != "200") <= len(threads), answered
    assert f"(process {victim}) died of signal 9; a new worker is started" in fresh.log
    assert eventually(
        lambda: not any(number for (name, _), number in metrics(fresh.http).items() if name == "gateway_in_flight")
    )


def test_connections_go_to_the_other_worker_while_one_keeps_dying(running: Process) -> None:
    stays, restarts = workers(running)[0], value(running.http, "gateway_worker_restarts_total")
    for death in range(1, 4):
        assert eventually(lambda: len(workers(running)) == 2)
        kill(running, next(pid for pid in workers(running) if pid != stays))
        # The connections that the kernel gave to the dead worker before the supervisor noticed its end are reset.
        assert restarted(running, restarts + death)
        for _ in range(10):
            answer = httpx.post(
                f"http://127.0.0.1:{running.port}{CALLS}", json=BODY, timeout=60, trust_env=False, verify=False
            )
            assert answer.status_code == 200
    assert served_by(running, 2), running.log
    with connections(running, 24):
        held = holders(running)
    assert stays in held
    assert all(held.values())


def test_counters_of_a_dead_worker_are_kept(fresh: Process) -> None:
    def counted() -> float:
        return value(fresh.http, "gateway_requests_total", endpoint="chat", model="first", outcome="ok")

    with connections(fresh, 20):
        assert counted() == 20
    for pid in workers(fresh):
        kill(fresh, pid)
    assert served_by(fresh, 2), fresh.log
    assert counted() == 20
    assert value(fresh.http, "gateway_worker_restarts_total") == 2


def test_the_single_admin_listener_survives_a_worker(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, files(f'workers: 2, admin: "127.0.0.1:{port}"')) as process:

        def ask(path: str) -> httpx.Response:
            return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, verify=False, timeout=30)

        assert process.http.get("/metrics").status_code == 404
        for _ in range(10):
            assert process.call_model("first") == "the first"
        for pid in workers(process):
            kill(process, pid)
            assert ask("/health/ready").json() == {"status": "ready"}
            assert eventually(lambda: "gateway_workers 2.0" in ask("/metrics").text), process.log
        assert "gateway_worker_restarts_total 2.0" in ask("/metrics").text


def test_a_worker_that_hangs_is_killed_and_replaced(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, files(f'workers: 2, worker_timeout: 2s, admin: "127.0.0.1:{port}"')) as process:
        assert process.call_model("first") == "the first"
        hung, other = workers(process)
        os.kill(hung, signal.SIGSTOP)
        assert eventually(lambda: hung not in workers(process) and len(workers(process)) == 2), process.log
        assert other in workers(process)
        with one_on_each(process) as held:
            assert {answer_on(client) for clients in held.values() for client in clients} == {"the first"}
        assert re.search(r"worker [01] has not answered for 2 s \(server.worker_timeout\); it is killed", process.log)
        assert f"(process {hung}) died of signal 9; a new worker is started" in process.log
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False, timeout=60) as admin:
            assert eventually(lambda: value(admin, "gateway_worker_restarts_total") == 1)


def test_workers_exit_when_the_supervisor_dies(tmp_path: Path) -> None:
    with serving(tmp_path, FILES) as process:
        pids = workers(process)
        assert len(pids) == 2
        process.signal(signal.SIGKILL)
        assert eventually(lambda: not any(alive(pid) for pid in pids)), process.log
        assert eventually(lambda: not process.accepts())


RIG = """\
import os, sys
if "gateway.server.processes.worker" in sys.orig_argv:
    os._exit(7)
"""


def test_the_supervisor_gives_up_workers_that_never_start(tmp_path: Path) -> None:
    (tmp_path / "rig").mkdir()
    (tmp_path / "rig" / "sitecustomize.py").write_text(RIG)
    write_files(tmp_path, FILES)
    ended = run(
        tmp_path, "serve", PYTHONPATH=f"{tmp_path}/rig{os.pathsep}{ROOT}", GATEWAY_SERVER__PORT=str(free_port())
    )
    assert ended.returncode == 1
    lines = ended.stderr.decode().splitlines()
    assert lines[-1] == "5 workers ended within 10 s, and no worker is ready; the gateway stops (see the log above)"
    assert sum("ended with code 7; a new worker is started" in line for line in lines) in (5, 6)  # both may end at once
    assert "Traceback" not in ended.stderr.decode()
