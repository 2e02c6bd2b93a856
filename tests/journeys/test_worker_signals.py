"""Start and end of a gateway with several worker processes: signals, drains and refused configurations."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.cli.command import command
from tests.journeys.process import run, serving
from tests.journeys.test_reload import TEMPLATE
from tests.journeys.workers import BODY, CALLS, ENDLESS, FILES, MODELS, alive, files, one_on_each, served_by, workers
from tests.support.ports import free_port
from tests.support.serving import ROOT, WAIT_SECONDS, eventually, write_files

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the tests look for workers in /proc")


def stream(client: httpx.Client, begun: Callable[[], None]) -> str:
    text = ""
    with client.stream("POST", CALLS, json={**BODY, "model": "slow", "stream": True}) as answer:
        for piece in answer.iter_text():
            text += piece
            begun()
    return text


SIGNALS = {
    "SIGTERM to the supervisor": (signal.SIGTERM, False),
    "SIGTERM to every process, as systemd does": (signal.SIGTERM, True),
    "SIGINT to every process, as a terminal does": (signal.SIGINT, True),
}


@pytest.mark.parametrize(("number", "everyone"), SIGNALS.values(), ids=SIGNALS)
def test_the_first_signal_drains_all_workers(tmp_path: Path, number: signal.Signals, everyone: bool) -> None:
    with serving(tmp_path, FILES) as process, one_on_each(process) as held, ThreadPoolExecutor(2) as pool:
        pids = list(held)
        both = threading.Barrier(3)
        calling_thread = threading.local()

        def begun() -> None:
            if not getattr(calling_thread, "once", False):
                calling_thread.once = True
                both.wait(WAIT_SECONDS)

        streams = [pool.submit(stream, clients[0], begun) for clients in held.values()]
        both.wait(WAIT_SECONDS)
        process.signal(number)
        for pid in pids if everyone else []:
            os.kill(pid, number)
        assert eventually(lambda: not process.accepts())
        for running in streams:
            text = running.result(WAIT_SECONDS)
            assert " and ended" in text
            assert text.endswith("data: [DONE]\n\n")
        assert process.process.wait(WAIT_SECONDS) == 0
        assert not any(alive(pid) for pid in pids)
        assert "Traceback" not in process.log
        assert "a new worker is started" not in process.log


def test_the_second_signal_stops_all_workers_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, {**files("workers: 2, drain: 1000s"), "slow.yaml": ENDLESS}) as process:
        begun = threading.Event()

        def ask() -> None:
            try:
                stream(process.http, begun.set)
            except httpx.TransportError:
                return

        thread = threading.Thread(target=ask)
        thread.start()
        assert begun.wait(WAIT_SECONDS)
        pids = workers(process)
        process.signal(signal.SIGTERM)
        assert eventually(lambda: not process.accepts())
        process.signal(signal.SIGTERM)
        assert process.process.wait(WAIT_SECONDS) == 1
        assert not any(alive(pid) for pid in pids)
        thread.join(WAIT_SECONDS)


def test_a_starting_worker_takes_no_connections_during_a_drain(tmp_path: Path) -> None:
    config = {**files("workers: 2, drain: 1000s"), "slow.yaml": ENDLESS}
    with serving(tmp_path, config) as process, one_on_each(process) as held:
        victim, survivor = held
        body = {**BODY, "model": "slow", "stream": True}
        with held[survivor][0].stream("POST", CALLS, json=body, timeout=WAIT_SECONDS) as answer:
            assert "begun" in next(text for text in answer.iter_text() if "begun" in text)
            os.kill(victim, signal.SIGKILL)
            assert eventually(lambda: bool(set(workers(process)) - set(held)))
            (starting,) = set(workers(process)) - set(held)
            assert eventually(lambda: b"server.processes.worker" in Path(f"/proc/{starting}/cmdline").read_bytes())
            os.kill(starting, signal.SIGSTOP)  # its start takes long
            process.signal(signal.SIGTERM)
            assert eventually(lambda: not process.accepts()), "connections are accepted, and never answered"
            assert alive(survivor)
        assert process.process.wait(WAIT_SECONDS) == 0


@pytest.mark.parametrize("after", [0.4, 0.8])
def test_a_signal_during_the_start_exits_cleanly(tmp_path: Path, after: float) -> None:
    write_files(tmp_path, FILES)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GATEWAY_SERVER__PORT": str(free_port())}
    command = [sys.executable, "-m", "gateway", "serve"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(after)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode in (0, -signal.SIGTERM)  # -SIGTERM before Python has installed its handlers
    assert "Traceback" not in said


RIG = """
import os, pathlib, sys, time
if "gateway.server.processes.worker" in sys.orig_argv:
    here = pathlib.Path(__file__).parent
    (here / f"{os.getpid()}.started").touch()
    while len(list(here.glob("*.started"))) < 2:
        time.sleep(0.01)
"""


def test_the_workers_start_in_parallel(tmp_path: Path) -> None:
    """Each worker waits at its start until the other has begun to start."""
    files = {**FILES, "rig/sitecustomize.py": RIG}
    with serving(tmp_path, files, PYTHONPATH=f"{tmp_path}/rig{os.pathsep}{ROOT}") as process:
        assert served_by(process, 2)


REFUSED = {  # files, exit code, message printed once
    "an unknown key": (
        {**FILES, "gateway.yaml": FILES["gateway.yaml"].replace("template", "templat", 1)},
        "models.first.templat:",
    ),
    "a script that is none": ({**FILES, "first.yaml": "{a: 1}\n"}, "models.first.targets[0].script"),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=REFUSED)
def test_a_broken_configuration_does_not_start(tmp_path: Path, given: dict[str, str], said: str) -> None:
    write_files(tmp_path, given)
    ended = run(tmp_path, "serve", GATEWAY_SERVER__PORT=str(free_port()))
    lines = ended.stderr.decode().splitlines()
    assert ended.returncode == 3
    assert sum(said in line for line in lines) == 1
    assert lines[-1] == f"{len(lines) - 1} problem{'s' if len(lines) > 2 else ''}"


@pytest.mark.parametrize("sharing", [False, True], ids=["alone", "sharing"])
def test_a_busy_port_is_reported_in_one_line(tmp_path: Path, sharing: bool) -> None:
    write_files(tmp_path, FILES)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, sharing)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run(tmp_path, "serve", GATEWAY_SERVER__PORT=str(port))
    assert ended.returncode == 3
    assert ended.stderr.decode().splitlines() == [
        f"error: cannot listen on 127.0.0.1:{port} (Address already in use); choose another port: server.port in "
        "gateway.yaml, --port 9000, or PORT=9000 make run"
    ]


@pytest.mark.parametrize("verb", ["check", "serve"])
def test_embedded_models_with_several_workers_are_reported(tmp_path: Path, verb: str) -> None:
    target = f"{{speaks: embedded, path: {ROOT}/demo/model}}"
    config = f"server: {{workers: 3}}\n{MODELS}  m: {{template: mine, targets: [{target}]}}\n"
    script = {"first.yaml": "{a: 1}\n"} if verb == "serve" else {}
    write_files(tmp_path, {**FILES, **script, "gateway.yaml": config, "meta_templates/mine.yaml": TEMPLATE})
    ended = (command if verb == "check" else run)(tmp_path, verb, GATEWAY_SERVER__PORT=str(free_port()))
    (first, *_) = ended.stderr.decode().splitlines()
    assert first == "note: each of the 3 workers loads its own copy of the embedded models: m"
