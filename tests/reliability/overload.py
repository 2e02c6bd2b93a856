"""Measurement of the figure T5 (``docs/spec/reliability.md`` 2.1): calls at several times the gateway's capacity."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.journeys.process import Process, serving
from tests.reliability.figures import request_bytes
from tests.support.serving import WAIT_SECONDS

PLACES = 20
SERVICE_SECONDS = 0.2
CAPACITY = PLACES / SERVICE_SECONDS
"""Calls per second that the gateway can answer."""
FILES = {
    "gateway.yaml": f"server: {{max_in_flight: {PLACES}}}\n"
    "models: {m: {template: chat, targets: [{speaks: scripted, script: script.yaml}]}}\n",
    "script.yaml": f"[{{pause: {SERVICE_SECONDS}}}, answer, {{finish: stop}}]\n",
}


@dataclass(frozen=True, slots=True)
class Load:
    """The result of calls at a fixed rate."""

    calls: int
    seconds: float
    statuses: dict[int, int]
    """Status → number of responses."""
    refusals: list[float]
    """Seconds until a response with status 503, sorted."""
    grown: int
    """Bytes by which the process's memory grew."""

    @property
    def answered_per_second(self) -> float:
        return self.statuses.get(200, 0) / self.seconds


def overload(folder: Path, factor: float, seconds: float) -> Load:
    """Send ``factor`` times ``CAPACITY`` calls per second, each on a connection of its own."""
    with serving(folder, FILES) as process:
        asyncio.run(_load(process, CAPACITY / 2, 1.0))  # the first calls of a process are slow
        return asyncio.run(_load(process, factor * CAPACITY, seconds))


async def _load(process: Process, rate: float, seconds: float) -> Load:
    statuses: Counter[int] = Counter()
    refusals: list[float] = []
    memory = _resident_bytes(process.process.pid)

    async def call() -> None:
        begun = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
        writer.write(request_bytes("m", stream=False))
        status = int((await reader.readuntil(b"\r\n\r\n"))[9:12])
        statuses[status] += 1
        if status == 503:
            refusals.append(time.monotonic() - begun)
        writer.close()

    begun = time.monotonic()
    async with asyncio.timeout(seconds + WAIT_SECONDS), asyncio.TaskGroup() as calls:
        for number in range(round(rate * seconds)):
            await asyncio.sleep(begun + number / rate - time.monotonic())
            calls.create_task(call())
        sent = time.monotonic() - begun
    grown = _resident_bytes(process.process.pid) - memory
    return Load(sum(statuses.values()), sent, dict(statuses), sorted(refusals), grown)


def _resident_bytes(pid: int) -> int:
    return 4096 * int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
