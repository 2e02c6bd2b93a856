"""A gateway with two worker processes: its files, its workers in ``/proc``, and connections to each of them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.journeys.process import Process
from tests.support.serving import eventually

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
ENDLESS = "[begun, {pause: 1000}, {finish: stop}]\n"
"""A script for the model ``slow``."""
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
    """Wait until ``number`` workers serve."""
    return _becomes(process, "gateway_workers", number)


def restarted(process: Process, number: float) -> bool:
    """Wait until the supervisor has noticed the end of ``number`` workers since its start."""
    return _becomes(process, "gateway_worker_restarts_total", number)


def _becomes(process: Process, metric: str, expected: float) -> bool:
    """Wait for the value of a metric. A worker that is being killed may reset the connection of the request."""

    def is_equal() -> bool:
        try:
            return value(process.http, metric) == expected
        except httpx.TransportError:
            return False

    return eventually(is_equal)


def kill(process: Process, pid: int) -> None:
    """Send SIGKILL to a worker and wait for its end; reopens the test's own connection, which may have been at it."""
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not alive(pid))
    process.http.close()
    process.http = httpx.Client(base_url=f"http://127.0.0.1:{process.port}", timeout=60, trust_env=False, verify=False)


@contextmanager
def connections(process: Process, number: int) -> Iterator[list[httpx.Client]]:
    """``number`` clients, each with one used connection."""
    clients = [
        httpx.Client(base_url=f"http://127.0.0.1:{process.port}", trust_env=False, verify=False, timeout=60)
        for _ in range(number)
    ]
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


def answer_on(client: httpx.Client) -> str:
    return str(client.post(CALLS, json=BODY).json()["choices"][0]["message"]["content"])
