"""Measurements of the figures T10 and T14 and of row E13 (``docs/spec/reliability.md``): a long run of mixed calls."""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import resource
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.backend.http_client.client import KEEPALIVE
from tests.journeys.process import Process, serving
from tests.reliability.figures import CLIENT_KEY, request_bytes
from tests.support.serving import eventually
from tests.support.upstream.server import FaultyUpstream

MODELS: dict[str, int] = {
    "ok": 60,
    "embeddings": 5,
    "500": 3,
    "400": 3,
    "429-retry-after": 3,
    "flaky": 3,
    "garbage": 3,
    "early-close": 3,
    "drop-midstream": 3,
    "malformed-sse": 3,
    "error-midstream": 3,
    "hang-headers": 1,
    "stall-midstream": 1,
    "unknown": 5,
    "wrong-key": 5,
    "hang-up": 5,
}
"""Kind of call → its weight. All but the last three are modes of the upstream, each with a model of the same name."""
NOT_A_MODE = ("unknown", "wrong-key", "hang-up")
PARALLEL = 16
LABEL = re.compile(r'\w+="[^"]*"')
WARM_UP = 0.5
"""The share of the calls before the first measurement."""

POLICY = "record: full\ndelivery: {timeout: {connect: 1s, first_token: 300ms, idle: 300ms, total: 2s}}\n"


@dataclass(frozen=True, slots=True)
class Level:
    """What the gateway process holds at one time, without calls."""

    memory: int
    """Resident bytes."""
    files: int
    """Open file descriptors."""
    series: int
    """Series of the metrics."""
    labels: frozenset[str]
    """The label values of all series, such as ``model="ok"``. The histograms' ``le`` is not among them."""


@dataclass(frozen=True, slots=True)
class Soak:
    """The result of a run."""

    statuses: Counter[int]
    """Status → responses; 0: the client left before its response, or the response broke off."""
    before: Level
    """After the first calls."""
    after: Level
    running: float
    """Calls in flight at the end."""
    active: int
    """Requests that the upstream still serves at the end."""
    tracebacks: int
    """Unhandled exceptions in the log."""


def soak(folder: Path, calls: int, seed: int = 1) -> Soak:
    """Send ``calls`` calls with faults, random models and wrong keys to one gateway process that records them."""
    with FaultyUpstream() as up:
        digest = hashlib.sha256(CLIENT_KEY.encode()).hexdigest()
        config = "keys: {file: keys.yaml}\nrecordings: {path: calls.sqlite, max_size: 512KiB}\nmodels:\n"
        for mode in MODELS.keys() - set(NOT_A_MODE):
            url = up.url("ok" if mode == "embeddings" else mode)
            config += f'  "{mode}": {{template: chat, policy: soak, targets: [{{speaks: chat, url: "{url}"}}]}}\n'
        files = {"gateway.yaml": config, "policies/soak.yaml": POLICY, "keys.yaml": f'one: {{sha256: "{digest}"}}\n'}
        with serving(folder, files) as process:
            process.http.headers["authorization"] = f"Bearer {CLIENT_KEY}"
            rng, statuses = random.Random(seed), Counter[int]()
            kinds = rng.choices(list(MODELS), list(MODELS.values()), k=calls)
            first = int(calls * WARM_UP)
            _send(process, up, kinds[:first], rng, statuses)
            before = _level(process, up)
            _send(process, up, kinds[first:], rng, statuses)
            eventually(lambda: up.active == 0)
            after = _level(process, up)
            running = sum(
                float(line.rpartition(" ")[2])
                for line in process.http.get("/metrics").text.splitlines()
                if line.startswith("gateway_in_flight")
            )
            return Soak(statuses, before, after, running, up.active, process.log.count("Traceback"))


def _send(
    process: Process, up: FaultyUpstream, calls: Sequence[str], rng: random.Random, statuses: Counter[int]
) -> None:
    kinds = iter(calls)

    async def client() -> None:
        for kind in kinds:
            up.requests.clear()
            statuses[await _call(process.port, kind, rng)] += 1

    async def all_clients() -> None:
        await asyncio.gather(*[client() for _ in range(PARALLEL)])

    asyncio.run(all_clients())


async def _call(port: int, kind: str, rng: random.Random) -> int:
    """One call on its own connection; returns its status."""
    stream = rng.random() < 0.5 and kind != "embeddings"
    model = {"unknown": f"random-{rng.randrange(1 << 60):x}", "wrong-key": "ok", "hang-up": "ok"}.get(kind, kind)
    request = request_bytes(model, stream).replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n", 1)
    if kind == "embeddings":
        body = b'{"model":"embeddings","input":"hi"}'
        head = request.partition(b"\r\n\r\n")[0].replace(b"chat/completions", b"embeddings", 1).splitlines()
        head[-1] = b"Content-Length: %d" % len(body)
        request = b"\r\n".join(head) + b"\r\n\r\n" + body
    if kind == "wrong-key":
        request = request.replace(CLIENT_KEY.encode(), b"gk_%x" % rng.randrange(1 << 60), 1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        if kind == "hang-up":
            with suppress(TimeoutError):
                async with asyncio.timeout(rng.uniform(0, 0.01)):
                    await reader.read()
            return 0
        answer = await reader.read()
        return int(answer[9:12]) if answer else 0
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _level(process: Process, up: FaultyUpstream) -> Level:
    """The level once the pools have closed their idle connections, which they do before their next call."""
    time.sleep(KEEPALIVE + 2)
    _send(process, up, [kind for kind in MODELS if kind not in NOT_A_MODE], random.Random(), Counter())
    proc = Path(f"/proc/{process.process.pid}")
    memory = int((proc / "statm").read_text().split()[1]) * resource.getpagesize()
    page: str = process.http.get("/metrics").text
    series = [line for line in page.splitlines() if not line.startswith("#")]
    labels = {label for line in series for label in LABEL.findall(line) if not label.startswith("le=")}
    return Level(memory, len(list((proc / "fd").iterdir())), len(series), frozenset(labels))
