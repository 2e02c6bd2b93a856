"""Measurements of figures (``docs/spec/reliability.md`` 2.1) at a gateway and an upstream in this process.

The suite takes them with small numbers and checks what does not depend on time; ``scripts/reliability`` takes them with
large ones and reports the times.
"""

from __future__ import annotations

import hashlib
import json
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.serving import gateway
from tests.support.upstream.modes import MODES
from tests.support.upstream.server import FaultyUpstream, refused_url
from tests.support.world import World

CLIENT_KEY = "gk_c4naryclientc4naryclient"
TARGET_KEY = "sk-c4narytargetc4narytarget"
PROMPT = "c4naryprompt"
HEADER = "c4naryheader"
CANARY = "c4nary"
"""Part of every secret of a call; must not be in logs, metrics and error bodies."""

MODE_MODELS = (
    "ok",
    "hang-headers",
    "slow-ttfb",
    "hang-body",
    "never-ends",
    "stall-midstream",
    "500",
    "401",
    "400",
    "html-502",
    "drop-midstream",
    "malformed-sse",
    "error-midstream",
    "garbage",
    "200-html",
    "429-quota",
    "flaky",
)
assert MODES.keys() >= set(MODE_MODELS)

POLICIES = {
    "patient": "delivery: {timeout: {connect: 50s, first_token: 50s, idle: 50s, total: 60s}}\n",
    "short": "delivery: {timeout: {connect: 1s, first_token: 1s, idle: 1s, total: 1s}}\n",
    "breaker": "delivery: {retry: {attempts: 2}}\n",
}
HEADERS = {
    "authorization": f"Bearer {CLIENT_KEY}",
    "cookie": f"session={HEADER}",
    "x-api-key": HEADER,
    "x-forwarded-for": HEADER,
    "forwarded": f"for={HEADER}",
    "user-agent": HEADER,
    "accept-encoding": "gzip, br",
}
"""Headers of every call, each with a canary."""


@contextmanager
def open_world(folder: Path) -> Iterator[World]:
    """Model ``MODE`` sends messages to the upstream in that mode; ``half-dead`` has one dead target of two."""
    files = {f"policies/{name}.yaml": text for name, text in POLICIES.items()}
    files["keys.yaml"] = f'one: {{sha256: "{hashlib.sha256(CLIENT_KEY.encode()).hexdigest()}"}}\n'
    with FaultyUpstream() as up:
        models: dict[str, tuple[str, tuple[str, ...]]] = {mode: ("patient", (up.url(mode),)) for mode in MODE_MODELS}
        models["deadline"] = ("short", (up.url("never-ends"),))
        models["half-dead"] = ("breaker", (up.url("ok"), refused_url()))
        config = "keys: {file: keys.yaml}\nmodels:\n"
        for name, (policy, urls) in models.items():
            targets = ", ".join(f'{{speaks: chat, url: "{url}", model: m, key: "env:TARGET_KEY"}}' for url in urls)
            config += f'  "{name}": {{template: chat, policy: {policy}, targets: [{targets}]}}\n'
        with gateway(folder, config, {"TARGET_KEY": TARGET_KEY}, files=files) as served:
            served.http.headers.update(HEADERS)
            yield World(served, up)


# ---------------------------------------------------------------- T2

PHASES = (
    ("hang-headers", True),
    ("hang-headers", False),
    ("slow-ttfb", True),
    ("slow-ttfb", False),
    ("hang-body", False),
    ("never-ends", True),
    ("stall-midstream", True),
)
"""(model, streamed): before the first byte, in a whole body, in a running stream, in a stalled stream."""
LONGEST_WAIT = 0.06
"""Seconds from the upstream's reading of the request to the hang-up, at most."""


@dataclass(frozen=True, slots=True)
class HangUps:
    """The result of clients that left."""

    seen: int
    """Hang-ups after which the upstream's connection was closed."""
    delays: list[float]
    """Seconds from the client's close to the upstream's view of it, sorted; its resolution is 3 ms."""
    running: float
    """Calls in flight afterwards."""
    active: int
    """Requests that the upstream still serves afterwards."""
    next_answers: int
    """Answers with status 200 to the next ten calls."""


def request_bytes(model: str, stream: bool) -> bytes:
    """A chat request with its head."""
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": PROMPT}]}
    content = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Authorization: Bearer {CLIENT_KEY}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def hang_ups(world: World, count: int, seed: int = 1) -> HangUps:
    """Send ``count`` calls one after the other, and close each connection at a random time."""
    rng, up, delays = random.Random(seed), world.up, []
    for number in range(count):
        model, stream = PHASES[number % len(PHASES)]
        closed, began = len(up.closed_early), up.request_count
        with socket.create_connection(("127.0.0.1", world.served.port), timeout=30) as link:
            link.sendall(request_bytes(model, stream))
            if not up.wait(lambda began=began: up.request_count > began):  # type: ignore[misc]
                continue
            time.sleep(rng.uniform(0, LONGEST_WAIT))
            left = time.monotonic()
        if up.wait(lambda closed=closed: len(up.closed_early) > closed):  # type: ignore[misc]
            delays.append(up.closed_early[-1] - left)
    answers = [world.served.chat("ok").status_code for _ in range(10)]
    world.served.wait_until_idle()
    up.wait(lambda: up.active == 0)
    return HangUps(len(delays), sorted(delays), world.served.running(), up.active, answers.count(200))


# ---------------------------------------------------------------- T3 and T4


@dataclass(frozen=True, slots=True)
class RetryStorm:
    """The result of calls to a model whose only target always fails."""

    calls: int
    attempts: int
    seconds: float
    refused_retries: float
    """Retries that the budget did not allow."""


def retry_storm(world: World, count: int, parallel: int = 16) -> RetryStorm:
    """Send ``count`` calls to a target that answers 500."""
    begun, before = time.monotonic(), world.up.request_count
    refused = world.served.metric("gateway_retry_budget_exhausted_total", model="500")
    with ThreadPoolExecutor(parallel) as pool:
        codes = set(pool.map(lambda _: world.served.chat("500").json()["error"]["code"], range(count)))
    assert codes == {"upstream_error"}
    seconds = time.monotonic() - begun
    refused = world.served.metric("gateway_retry_budget_exhausted_total", model="500") - refused
    return RetryStorm(count, world.up.request_count - before, seconds, refused)


def half_dead(world: World, count: int, parallel: int = 16) -> int:
    """The number of ``count`` calls that are answered while one of two targets refuses connections."""
    with ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(lambda _: world.served.chat("half-dead").status_code, range(count))).count(200)


# ---------------------------------------------------------------- T11


@dataclass(frozen=True, slots=True)
class Usage:
    """What was counted for completed calls."""

    calls: int
    records: float
    """Calls that the gateway counted as ``ok``."""
    upstream: dict[str, int]
    """Direction → tokens that the answers of the upstream report."""
    counted: dict[str, float]
    """Direction → tokens in the gateway's metric."""


def usage(world: World, count: int) -> Usage:
    """Send ``count`` calls, every second one streamed, and compare the tokens of the answers with the metric."""

    def counted() -> dict[str, float]:
        directions = ("prompt", "completion")
        return {
            one: world.served.metric("gateway_tokens_total", model="ok", direction=one, source="upstream")
            for one in directions
        }

    def records() -> float:
        return world.served.metric("gateway_requests_total", endpoint="chat", model="ok", outcome="ok")

    before, answered = counted(), records()
    sums = dict.fromkeys(before, 0)
    for number in range(count):
        options: dict[str, object] = {"stream": True, "stream_options": {"include_usage": True}} if number % 2 else {}
        answer = world.served.chat("ok", "hi", **options)
        last = answer.text.split("\n\n")[-3].removeprefix("data: ") if number % 2 else answer.text
        for direction in sums:
            sums[direction] += json.loads(last)["usage"][f"{direction}_tokens"]
    world.served.wait_until_idle()
    after = counted()
    return Usage(count, records() - answered, sums, {one: after[one] - before[one] for one in after})


# ---------------------------------------------------------------- T13 and T14


def leaks(world: World, repeats: int = 1) -> list[str]:
    """Call every model, streamed and whole, and in wrong forms; returns the error bodies and metrics with a canary."""
    bodies: list[str] = []
    quick = [mode for mode in MODE_MODELS if mode not in {"hang-headers", "hang-body", "never-ends", "stall-midstream"}]
    for _ in range(repeats):
        for model in [*quick, "deadline", "half-dead"]:
            bodies += [world.served.chat(model, PROMPT, stream=stream).text for stream in (False, True)]
        for wrong in ({"temperature": PROMPT}, {"stop": [PROMPT, ""]}, {"logit_bias": PROMPT}, {"n": PROMPT}):
            bodies.append(world.served.chat("ok", PROMPT, **wrong).text)
        bodies.append(world.served.http.post("/v1/chat/completions", content=PROMPT.encode()).text)
        other = {"authorization": f"Bearer x{CLIENT_KEY}"}
        bodies.append(world.served.http.get("/v1/models", headers=other).text)
    world.served.wait_until_idle()
    bodies.append(world.served.http.get("/metrics").text)
    return [body for body in bodies if CANARY in body]


def new_series(world: World, count: int, seed: int = 1) -> int:
    """The number of series that ``count`` calls with random models, and as many with random keys, add."""
    rng = random.Random(seed)

    def ask(name: str) -> None:
        world.served.chat(name)
        world.served.http.post(f"/{name}/v1/chat/completions", json={}, headers={"authorization": f"Bearer {name}"})

    def series() -> set[str]:
        page: str = world.served.http.get("/metrics").text
        return {line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")}

    ask("first")
    before = series()
    for _ in range(count):
        ask(f"random-{rng.randrange(1 << 60):x}")
    return len(series() - before)
