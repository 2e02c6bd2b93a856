"""Several worker processes on one port act as one gateway for clients, Prometheus and signals."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.journeys.process import Process, free_port, run, serving
from tests.journeys.test_reload import TEMPLATE
from tests.serving import ROOT, WAIT_SECONDS, eventually

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the tests look for workers in /proc")

MODELS = """\
models:
  first: {template: chat, targets: [{speaks: scripted, script: first.yaml}]}
  slow: {template: chat, targets: [{speaks: scripted, script: slow.yaml}]}
"""
FILES = {
    "gateway.yaml": "server: {workers: 2}\n" + MODELS,
    "first.yaml": "[the first, {finish: stop}]\n",
    "second.yaml": "[the second, {finish: stop}]\n",
    "slow.yaml": "[begun, {pause: 1.0}, ' and ended', {finish: stop}]\n",
}
BODY = {"model": "first", "messages": [{"role": "user", "content": "hi"}]}
CALLS = "/v1/chat/completions"


def files(server: str) -> dict[str, str]:
    return {**FILES, "gateway.yaml": f"server: {{{server}}}\n{MODELS}"}


def workers(process: Process) -> list[int]:
    """The running children of the supervisor."""
    pid = process.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if alive(int(child))]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def holders(process: Process) -> Counter[int]:
    """Worker → number of its connections to the main port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = {row[9] for row in rows if int(row[1].rpartition(":")[2], 16) == process.port and row[3] == "01"}
    found: Counter[int] = Counter()
    for pid in workers(process):
        links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
        found[pid] = sum(link.removeprefix("socket:[").rstrip("]") in ours for link in links)
    return found


def metrics(client: httpx.Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value(client: httpx.Client, name: str, **labels: str) -> float:
    return metrics(client).get((name, tuple(sorted(labels.items()))), 0.0)


def served_by(process: Process, number: int) -> bool:
    return eventually(lambda: value(process.http, "gateway_workers") == number)


def kill(process: Process, pid: int) -> None:
    """Send SIGKILL to a worker and wait for its end; reopens the test's own connection, which may have been at it."""
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not alive(pid))
    process.http.close()
    process.http = httpx.Client(base_url=f"http://127.0.0.1:{process.port}", timeout=60, trust_env=False)


@contextmanager
def connections(process: Process, number: int) -> Iterator[list[httpx.Client]]:
    """``number`` clients, each with one used connection."""
    clients = [httpx.Client(base_url=f"http://127.0.0.1:{process.port}", trust_env=False) for _ in range(number)]
    try:
        for client in clients:
            assert client.post(CALLS, json=BODY).status_code == 200
        yield clients
    finally:
        for client in clients:
            client.close()


@contextmanager
def one_on_each(process: Process) -> Iterator[dict[int, list[httpx.Client]]]:
    """Worker → its connections, at least one for each of two workers."""
    with connections(process, 16) as clients:
        by_port = {
            client._transport._pool.connections[0]._connection._network_stream.get_extra_info("client_addr")[1]: client  # type: ignore[attr-defined]
            for client in clients
        }
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        inodes = {
            row[9]: int(row[2].rpartition(":")[2], 16)
            for row in rows
            if int(row[1].rpartition(":")[2], 16) == process.port
        }
        held: dict[int, list[httpx.Client]] = {}
        for pid in workers(process):
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
            ports = [inodes.get(link.removeprefix("socket:[").rstrip("]")) for link in links]
            held[pid] = [by_port[port] for port in ports if port in by_port]
        assert len(held) == 2
        assert all(held.values())
        yield held


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("workers"), FILES) as process:
        yield process


# ---------------------------------------------------------------- one gateway


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
    sizes = {"VmRSS": 0, "VmSize": 0}
    opened = []
    for pid in [running.process.pid, *workers(running)]:
        status = Path(f"/proc/{pid}/status").read_text()
        for name in sizes:
            sizes[name] += int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]
        opened.append(len(list(Path(f"/proc/{pid}/fd").iterdir())))
    assert value(running.http, "process_virtual_memory_bytes") == pytest.approx(sizes["VmSize"], rel=0.1)
    assert value(running.http, "process_resident_memory_bytes") == pytest.approx(sizes["VmRSS"], rel=0.1)
    assert value(running.http, "process_open_fds") == pytest.approx(max(opened), abs=4)
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
    body = {**BODY, "model": "slow"}
    with serving(tmp_path, files("workers: 2, max_in_flight: 2")) as process, one_on_each(process) as held:
        clients = [client for clients in held.values() for client in clients]
        with ThreadPoolExecutor(len(clients)) as pool:
            answers = list(pool.map(lambda client: client.post(CALLS, json=body).status_code, clients))
    assert Counter(answers) == {200: 2, 503: len(clients) - 2}


# ---------------------------------------------------------------- reload


def answer_on(client: httpx.Client) -> str:
    return str(client.post(CALLS, json=BODY).json()["choices"][0]["message"]["content"])


SECOND = FILES["gateway.yaml"].replace("first.yaml", "second.yaml")


def test_a_reload_is_accepted_or_refused_by_all_workers(tmp_path: Path) -> None:
    with serving(tmp_path, FILES) as process, one_on_each(process) as held:
        process.write("gateway.yaml", SECOND)
        process.reload("ok")
        assert {answer_on(client) for clients in held.values() for client in clients} == {"the second"}
        process.write("second.yaml", "{a: 1}\n")
        process.reload("error")
        assert {answer_on(client) for clients in held.values() for client in clients} == {"the second"}
        assert eventually(lambda: process.log.count("reload refused") == process.reloads("error"))
        assert process.log.count("models.first.targets[0].script") == process.log.count("reload refused")


@pytest.mark.parametrize("pause", [0.0, 0.005, 0.02])
def test_a_worker_that_dies_during_a_reload_does_not_hide_its_result(tmp_path: Path, pause: float) -> None:
    with serving(tmp_path, FILES) as process:
        process.write("first.yaml", "{a: 1}\n")
        process.signal(signal.SIGHUP)
        time.sleep(pause)
        os.kill(min(workers(process)), signal.SIGKILL)
        assert eventually(lambda: "reload refused" in process.log), process.log
        assert "Traceback" not in process.log
        process.write("first.yaml", FILES["first.yaml"])
        assert eventually(lambda: process.log.count("is in use now") >= 1), process.log


def test_sighup_to_a_worker_reloads_all_workers(tmp_path: Path) -> None:
    with serving(tmp_path, FILES) as process, one_on_each(process) as held:
        process.write("gateway.yaml", SECOND)
        os.kill(next(iter(held)), signal.SIGHUP)
        assert eventually(lambda: process.reloads("ok") == 1), process.log
        assert {answer_on(client) for clients in held.values() for client in clients} == {"the second"}


def test_a_changed_file_is_reloaded_by_all_workers(tmp_path: Path) -> None:
    with serving(tmp_path, FILES) as process, one_on_each(process) as held:
        process.write("gateway.yaml", SECOND)
        assert eventually(lambda: process.reloads("ok") == 1), process.log
        assert {answer_on(client) for clients in held.values() for client in clients} == {"the second"}


def test_a_new_worker_serves_the_accepted_configuration(tmp_path: Path) -> None:
    with serving(tmp_path, FILES) as process:
        process.write("gateway.yaml", SECOND)
        process.reload("ok")
        process.write("gateway.yaml", "models: 5\n")
        process.reload("error")
        kill(process, workers(process)[0])
        assert eventually(lambda: value(process.http, "gateway_worker_restarts_total") == 1)
        assert served_by(process, 2), process.log
        with one_on_each(process) as held:
            assert {answer_on(client) for clients in held.values() for client in clients} == {"the second"}


# ---------------------------------------------------------------- deaths


def test_a_killed_worker_is_replaced_while_the_other_serves(tmp_path: Path) -> None:
    with serving(tmp_path, FILES) as process:
        stop = threading.Event()
        answered: Counter[str] = Counter()

        def ask() -> None:
            """One call on each connection: calls at the dead worker may fail, but no connection may be refused."""
            while not stop.is_set():
                try:
                    answer = httpx.post(
                        f"http://127.0.0.1:{process.port}{CALLS}", json=BODY, timeout=30, trust_env=False
                    )
                    answered[str(answer.status_code)] += 1
                except httpx.TransportError as error:
                    answered[type(error).__name__] += 1

        threads = [threading.Thread(target=ask) for _ in range(4)]
        with one_on_each(process) as held:
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
                    whole = current["gateway_workers", ()] == 2 and current["gateway_worker_restarts_total", ()] == 1
                assert whole, process.log
                assert victim not in workers(process)
                assert len(workers(process)) == 2
            finally:  # so that a failed test ends
                stop.set()
                for thread in threads:
                    thread.join(WAIT_SECONDS)
        assert answered["200"] >= len(threads)
        assert "ConnectError" not in answered, answered
        assert sum(number for kind, number in answered.items() if kind != "200") <= len(threads), answered
        assert f"(process {victim}) died of signal 9; a new worker is started" in process.log
        assert eventually(lambda: value(process.http, "gateway_in_flight", endpoint="chat", model="first") == 0)


def test_connections_go_to_the_other_worker_while_one_keeps_dying(tmp_path: Path) -> None:
    with serving(tmp_path, FILES) as process:
        stays = workers(process)[0]
        for death in range(1, 5):
            assert eventually(lambda: len(workers(process)) == 2)
            kill(process, next(pid for pid in workers(process) if pid != stays))
            for _ in range(10):
                answer = httpx.post(f"http://127.0.0.1:{process.port}{CALLS}", json=BODY, timeout=30, trust_env=False)
                assert answer.status_code == 200
            assert eventually(lambda death=death: value(process.http, "gateway_worker_restarts_total") == death)
        assert served_by(process, 2), process.log
        with connections(process, 24):
            held = holders(process)
        assert stays in held
        assert all(held.values())


def test_the_single_admin_listener_survives_a_worker(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, files(f'workers: 2, admin: "127.0.0.1:{port}"')) as process:

        def ask(path: str) -> httpx.Response:
            return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=30)

        assert process.http.get("/metrics").status_code == 404
        for _ in range(10):
            assert process.call_model("first") == "the first"
        for pid in workers(process):
            kill(process, pid)
            assert ask("/health/ready").json() == {"status": "ready"}
            assert eventually(lambda: "gateway_workers 2.0" in ask("/metrics").text), process.log
        assert "gateway_worker_restarts_total 2.0" in ask("/metrics").text


def test_counters_of_a_dead_worker_are_kept(tmp_path: Path) -> None:
    with serving(tmp_path, FILES) as process:
        with connections(process, 20):
            assert value(process.http, "gateway_requests_total", endpoint="chat", model="first", outcome="ok") == 20
        for pid in workers(process):
            kill(process, pid)
        assert served_by(process, 2)
        assert value(process.http, "gateway_requests_total", endpoint="chat", model="first", outcome="ok") == 20
        assert value(process.http, "gateway_worker_restarts_total") == 2


def test_workers_exit_when_the_supervisor_dies(tmp_path: Path) -> None:
    with serving(tmp_path, FILES) as process:
        pids = workers(process)
        assert len(pids) == 2
        process.signal(signal.SIGKILL)
        assert eventually(lambda: not any(alive(pid) for pid in pids)), process.log
        assert eventually(lambda: not process.accepts())


RIG = """\
import os, sys
if "gateway.server.worker" in sys.orig_argv:
    os._exit(7)
"""


def test_the_supervisor_gives_up_workers_that_never_start(tmp_path: Path) -> None:
    (tmp_path / "rig").mkdir()
    (tmp_path / "rig" / "sitecustomize.py").write_text(RIG)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    ended = run(
        tmp_path, "serve", PYTHONPATH=f"{tmp_path}/rig{os.pathsep}{ROOT}", GATEWAY_SERVER__PORT=str(free_port())
    )
    assert ended.returncode == 1
    lines = ended.stderr.decode().splitlines()
    assert lines[-1] == "5 workers ended within 10 s, and no worker is ready; the gateway stops (see the log above)"
    assert sum("ended with code 7; a new worker is started" in line for line in lines) in (5, 6)  # both may end at once
    assert "Traceback" not in ended.stderr.decode()


# ---------------------------------------------------------------- the end, and beginnings that fail


def stream(client: httpx.Client, begun: Callable[[], None]) -> str:
    text = ""
    with client.stream("POST", CALLS, json={**BODY, "model": "slow", "stream": True}) as answer:
        for piece in answer.iter_text():
            text += piece
            begun()
    return text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("everyone", [False, True], ids=["the supervisor", "every process, as systemd does"])
def test_the_first_signal_drains_all_workers(tmp_path: Path, number: signal.Signals, everyone: bool) -> None:
    with serving(tmp_path, FILES) as process, one_on_each(process) as held, ThreadPoolExecutor(2) as pool:
        pids = list(held)
        both = threading.Barrier(3)
        calling_thread = threading.local()

        def begun() -> None:
            if not getattr(calling_thread, "once", False):
                calling_thread.once = True
                both.wait(30)

        streams = [pool.submit(stream, clients[0], begun) for clients in held.values()]
        both.wait(30)
        process.signal(number)
        for pid in pids if everyone else []:
            os.kill(pid, number)
        assert eventually(lambda: not process.accepts())
        for running in streams:
            text = running.result(30)
            assert " and ended" in text
            assert text.endswith("data: [DONE]\n\n")
        assert process.process.wait(30) == 0
        assert not any(alive(pid) for pid in pids)
        assert "Traceback" not in process.log
        assert "a new worker is started" not in process.log


def test_the_second_signal_stops_all_workers_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, {**FILES, "slow.yaml": "[begun, {pause: 20.0}, {finish: stop}]\n"}) as process:
        begun = threading.Event()

        def ask() -> None:
            try:
                stream(process.http, begun.set)
            except httpx.TransportError:
                return

        thread = threading.Thread(target=ask)
        thread.start()
        assert begun.wait(30)
        pids = workers(process)
        process.signal(signal.SIGTERM)
        assert eventually(lambda: not process.accepts())
        process.signal(signal.SIGTERM)
        assert process.process.wait(15) == 1  # the stream would continue for 20 s
        assert not any(alive(pid) for pid in pids)
        thread.join(5)


def test_a_starting_worker_takes_no_connections_during_a_drain(tmp_path: Path) -> None:
    with serving(tmp_path, files("workers: 2, drain: 60s")) as process, ThreadPoolExecutor(1) as pool:
        with one_on_each(process) as held:
            victim, survivor = held
            running = pool.submit(held[survivor][0].post, CALLS, json={**BODY, "model": "slow"}, timeout=20)
            assert eventually(lambda: value(process.http, "gateway_in_flight", endpoint="chat", model="slow") == 1, 5)
            os.kill(victim, signal.SIGKILL)
            assert eventually(lambda: bool(set(workers(process)) - set(held)), 10)
            (starting,) = set(workers(process)) - set(held)
            assert eventually(lambda: b"server.worker" in Path(f"/proc/{starting}/cmdline").read_bytes(), 10)
            os.kill(starting, signal.SIGSTOP)  # its start takes long
            process.signal(signal.SIGTERM)
            assert eventually(lambda: not process.accepts(), 20), "connections are accepted, and never answered"
            assert running.result().status_code == 200
        assert process.process.wait(20) == 0


@pytest.mark.parametrize("after", [0.5, 0.9, 1.2])
def test_a_signal_during_the_start_exits_cleanly(tmp_path: Path, after: float) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GATEWAY_SERVER__PORT": str(free_port())}
    command = [sys.executable, "-m", "gateway", "serve"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(after)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGTERM)  # -SIGTERM before Python has installed its handlers
    assert "Traceback" not in said


def test_the_workers_start_in_parallel(tmp_path: Path) -> None:
    """Compared with the start of a single process: one such time for the supervisor and one for all workers."""
    took: dict[int, list[float]] = {1: [], 2: []}
    for attempt in range(3):
        for number in took:
            folder = tmp_path / f"{attempt}-{number}"
            folder.mkdir()
            began = time.monotonic()
            with serving(folder, files(f"workers: {number}")):
                took[number].append(time.monotonic() - began)
    assert min(took[2]) < 4 * min(took[1])


REFUSED = {  # files, exit code, message printed once
    "an unknown key": (
        {**FILES, "gateway.yaml": FILES["gateway.yaml"].replace("template", "templat", 1)},
        "models.first.templat:",
    ),
    "a script that is none": ({**FILES, "first.yaml": "{a: 1}\n"}, "models.first.targets[0].script"),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=REFUSED)
def test_a_broken_configuration_does_not_start(tmp_path: Path, given: dict[str, str], said: str) -> None:
    for name, text in given.items():
        (tmp_path / name).write_text(text)
    ended = run(tmp_path, "serve", GATEWAY_SERVER__PORT=str(free_port()))
    lines = ended.stderr.decode().splitlines()
    assert ended.returncode == 3
    assert sum(said in line for line in lines) == 1
    assert lines[-1] == f"{len(lines) - 1} problem{'s' if len(lines) > 2 else ''}"


@pytest.mark.parametrize("sharing", [False, True], ids=["alone", "sharing"])
def test_a_busy_port_is_reported_in_one_line(tmp_path: Path, sharing: bool) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, sharing)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run(tmp_path, "serve", GATEWAY_SERVER__PORT=str(port))
    assert ended.returncode == 3
    assert ended.stderr.decode().splitlines() == [
        f"error: cannot listen on 127.0.0.1:{port} (Address already in use); choose another port"
    ]


@pytest.mark.parametrize("verb", ["check", "serve"])
def test_embedded_models_with_several_workers_are_reported(tmp_path: Path, verb: str) -> None:
    (tmp_path / "meta_templates").mkdir()
    (tmp_path / "meta_templates" / "mine.yaml").write_text(TEMPLATE)
    target = f"{{speaks: embedded, path: {ROOT}/demo/model}}"
    config = f"server: {{workers: 3}}\n{MODELS}  m: {{template: mine, targets: [{target}]}}\n"
    for name, text in {
        **FILES,
        "first.yaml": "{a: 1}\n" if verb == "serve" else FILES["first.yaml"],
        "gateway.yaml": config,
    }.items():
        (tmp_path / name).write_text(text)
    ended = run(tmp_path, verb, GATEWAY_SERVER__PORT=str(free_port()))
    assert ended.stderr.decode().splitlines()[0] == "note: each of the 3 workers loads its own copy of m (embedded)"
