"""What does a call cost before the upstream is asked, and after it has answered? ``python -m bench.admission [PART]``.

Nanoseconds per stage, without any network: ``small`` is a short chat request, ``turns`` one of 199 messages, ``large``
one message of a megabyte, each through ChatML; ``after`` is what every finished call leaves, ``keys`` a client's key.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TextIO

import orjson

from bench.conversation import TEMPLATES
from gateway.assembly import bare_route
from gateway.backend.embedded.cache import EngineCache
from gateway.calls.prepare import Prepared, prepare
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.config.files.reader import Files
from gateway.config.sections.templates import read_template
from gateway.config.snapshot import KeySpec, ModelSpec, ParamsPolicy, PolicySpec, TargetSpec
from gateway.core.dialogue import Dialogue
from gateway.core.events import Begun, Delta, Finish, Usage
from gateway.policy.admit.api_keys import Keyring
from gateway.telemetry.call_log import log_call
from gateway.telemetry.log_writer import LogWriter
from gateway.telemetry.metrics import Metrics
from gateway.wire.json import parse_object
from gateway.wire.requests import read_chat

RUNS = 7
SECONDS = 0.1
"""Of one run; the best of all runs is told."""

LINES_A_WRITE = 1000
"""What comes together in a tenth of a second under load."""

POLICIES = {
    "says nothing": ParamsPolicy(),
    "eval": ParamsPolicy(default={"temperature": 0}, explicit=True),
}


def bench(name: str, step: Callable[[], object]) -> None:
    """Print the best run, per call."""
    step()
    began = perf_counter_ns()
    for _ in range(3):
        step()
    rounds = max(1, int(SECONDS * 1e9 / max((perf_counter_ns() - began) / 3, 1)))
    best = min(_run(step, rounds) for _ in range(RUNS))
    print(f"  {name:<42}{best / rounds:>12,.0f} ns", flush=True)


def _run(step: Callable[[], object], rounds: int) -> int:
    began = perf_counter_ns()
    for _ in range(rounds):
        step()
    return perf_counter_ns() - began


def at_once(work: Coroutine[Any, Any, Prepared]) -> Prepared:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("it waited")


def route(params: ParamsPolicy) -> Route:
    """ChatML before a completions engine, under a policy."""
    path = TEMPLATES / "chatml.yaml"
    files = Files(TEMPLATES.parent)
    template = read_template(files, path, "chatml", files.add_problem(path))
    assert template is not None, files.problems
    target = TargetSpec("m/0", "completions", "http://127.0.0.1:1/v1", "m")
    return bare_route(ModelSpec("m", template, PolicySpec("p", params=params), (target,)), EngineCache())


SMALL = {
    "model": "m",
    "messages": [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "What is 17 plus 25?"}],
    "max_tokens": 64,
    "temperature": 0.7,
}
BODIES: dict[str, dict[str, Any]] = {
    "small": SMALL,
    "turns": {**SMALL, "messages": [{"role": ("user", "assistant")[i % 2], "content": f"{i}: What is 17 plus 25?"}
                                    for i in range(199)]},
    "large": {**SMALL, "messages": [{"role": "user", "content": "All work and no play. " * 47_662}]},
}  # fmt: skip


def before(body: bytes) -> None:
    """From the bytes of a body to the exchange."""
    routes = {name: route(params) for name, params in POLICIES.items()}
    plain = routes["says nothing"]
    parsed = parse_object(body)
    call = read_chat(parsed, request_id="req_1", received=0.0)
    dialogue = call.dialogue
    assert isinstance(dialogue, Dialogue)

    def whole(way: Route) -> object:
        call = read_chat(parse_object(body), request_id="req_1", received=0.0)
        return at_once(prepare(way, call)).prompt_sha256

    bench("json: bytes to a dict (orjson alone)", lambda: orjson.loads(body))
    bench("json: parse_object", lambda: parse_object(body))
    bench("read_chat", lambda: read_chat(parsed, request_id="req_1", received=0.0))
    bench("render", lambda: plain.template.render(dialogue).text)
    for name, way in routes.items():
        bench(f"prepare, render within ({name})", lambda way=way: at_once(prepare(way, call)))  # type: ignore[misc]
    bench("prepare, and the hash", lambda: at_once(prepare(plain, call)).prompt_sha256)
    for name, way in routes.items():
        bench(f"all of it ({name})", lambda way=way: whole(way))  # type: ignore[misc]


def _progress() -> CallTimeline:
    progress = CallTimeline("chat", "req_0123456789abcdef0123456789abcdef", time.monotonic())
    progress.model, progress.template, progress.kind = "m", "chatml", "meta"
    progress.admitted()
    progress.render = 0.00001
    progress.backend_opening()
    progress.events_received((Begun("m/0"), Delta(0, "42"), Finish(0, "stop"), Usage(31, 2)))
    progress.backend_closed()
    return progress


def after() -> None:
    """From the answer to the last trace of the call; the log goes to ``/dev/null``."""
    metrics, progress = Metrics(), _progress()
    record = progress.freeze("ok", 200)

    def flight() -> None:
        in_flight = metrics.in_flight["chat"]
        in_flight.value += 1
        in_flight.value -= 1

    lines, calls = logging.getLogger().handlers[0], count(1)

    def line() -> None:
        log_call(record)
        if not next(calls) % LINES_A_WRITE:
            lines.flush()

    def whole() -> None:
        record = progress.freeze("ok", 200)
        metrics.record(record)
        line()

    bench("progress: one made", lambda: CallTimeline("chat", "req_1", 0.0))
    bench("in_flight, both ways", flight)
    bench("freeze", lambda: progress.freeze("ok", 200))
    bench("metrics", lambda: metrics.record(record))
    bench("log line", line)
    bench("record, metrics and log", whole)


def keys() -> None:
    """A client key among a thousand, and its models."""
    from hashlib import sha256

    specs = [KeySpec(f"k{i}", sha256(f"gk_{i}".encode()).hexdigest(), ("a-*", "b-*", "m*")) for i in range(1000)]
    ring = Keyring(tuple(specs))
    bench("keys: admit", lambda: ring.admit("Bearer gk_500"))
    bench("keys: a model of a key's", lambda: ring.opens(specs[500], "m"))


def main(wanted: str = "") -> None:
    for name, body in BODIES.items():
        if wanted in name:
            print(name)
            before(orjson.dumps(body))
    for part in (after, keys):
        if wanted in part.__name__:
            print(part.__name__)
            part()


async def served(wanted: str, stream: TextIO) -> None:
    """As in ``gateway serve``: the log is written by a handler of ours, inside an event loop."""
    logging.basicConfig(level=logging.INFO, handlers=[LogWriter(stream.write)])
    main(wanted)


if __name__ == "__main__":
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        asyncio.run(served("".join(sys.argv[1:]), nowhere))
