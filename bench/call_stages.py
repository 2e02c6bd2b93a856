"""CPU time of single stages of a call, in nanoseconds, without network: ``python -m bench.call_stages [PART]``.

Parts: ``small`` (a short chat request), ``turns`` (one of 199 messages) and ``large`` (one message of 1 MB) prepare a
request through ChatML; ``stream`` processes streamed events; ``after`` records a finished call; ``keys`` checks a
client key.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TextIO

import orjson

from bench.rendering.render_gateway import load_template_spec
from gateway.assembly import bare_route
from gateway.backend.openai.answer.events import COMPLETIONS_FORMAT, ChunkReader
from gateway.calls.preparation.prepare import Prepared, prepare
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.config.snapshot import KeySpec, ModelSpec, ParamsPolicy, PolicySpec, TargetSpec
from gateway.core.exchange import AttemptLog
from gateway.policy.access.api_keys import Keyring
from gateway.stream.completion_builder import CompletionBuilder
from gateway.stream.sse import SseParser
from gateway.telemetry.call_log import log_call
from gateway.telemetry.log_writer import LogWriter
from gateway.telemetry.metrics import Metrics
from gateway.wire.json import parse_object
from gateway.wire.requests import read_chat
from gateway.wire.responses import AnswerHead, ChatWriter
from metatemplate.answers.stops.stop_cutter import StopCutter
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.events import Begun, Delta, Finish, TokenLogprob, Usage

RUNS = 7
"""The fastest of these runs is printed."""
RUN_SECONDS = 0.1
LINES_PER_WRITE = 1000
"""Log lines that are written together, as in a tenth of a second under load."""

POLICIES = {
    "empty policy": ParamsPolicy(),
    "eval": ParamsPolicy(default={"temperature": 0}, explicit=True),
}
SMALL = {
    "model": "m",
    "messages": [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "What is 17 plus 25?"}],
    "max_tokens": 64,
    "temperature": 0.7,
}
REQUESTS: dict[str, dict[str, Any]] = {
    "small": SMALL,
    "turns": {
        **SMALL,
        "messages": [
            {"role": ("user", "assistant")[i % 2], "content": f"{i}: What is 17 plus 25?"} for i in range(199)
        ],
    },
    "large": {**SMALL, "messages": [{"role": "user", "content": "All work and no play. " * 47_662}]},
}
EVENT = (
    b'data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m",'
    b'"choices":[{"index":0,"text":" hello","logprobs":null,"finish_reason":null}]}\n\n'
)
STOPS = ("<eob>", "</s>", "\n<HUMAN>: ")


def measure(name: str, step: Callable[[], object], count: int = 1) -> None:
    """Print the time of the fastest run, per call of ``step`` divided by ``count``."""
    step()
    calls = max(1, int(RUN_SECONDS * 1e9 / max(_time_calls(step, 3) / 3, 1)))
    best = min(_time_calls(step, calls) for _ in range(RUNS))
    print(f"  {name:<42}{best / calls / count:>12,.0f} ns", flush=True)


def _time_calls(step: Callable[[], object], calls: int) -> int:
    began = perf_counter_ns()
    for _ in range(calls):
        step()
    return perf_counter_ns() - began


def run_without_waiting(coroutine: Coroutine[Any, Any, Prepared]) -> Prepared:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("the coroutine suspended")


def chatml_route(params: ParamsPolicy) -> Route:
    """ChatML and a completions target, with a parameter policy."""
    target = TargetSpec("m/0", "completions", "http://127.0.0.1:1/v1", "m")
    model = ModelSpec("m", load_template_spec("chatml"), PolicySpec("p", params=params), (target,))
    return bare_route(model)


def measure_request(request: dict[str, Any]) -> None:
    """From the bytes of the body to the exchange."""
    body = orjson.dumps(request)
    routes = {name: chatml_route(params) for name, params in POLICIES.items()}
    plain = routes["empty policy"]
    parsed = parse_object(body)
    call = read_chat(parsed, request_id="req_1")
    dialogue = call.dialogue
    assert isinstance(dialogue, Dialogue)

    def all_stages(route: Route) -> object:
        call = read_chat(parse_object(body), request_id="req_1")
        return run_without_waiting(prepare(route, call)).prompt_sha256

    measure("json: orjson.loads", lambda: orjson.loads(body))
    measure("json: parse_object", lambda: parse_object(body))
    measure("read_chat", lambda: read_chat(parsed, request_id="req_1"))
    measure("render", lambda: plain.template.render(dialogue).text)
    for name, route in routes.items():
        measure(f"prepare, with render ({name})", lambda route=route: run_without_waiting(prepare(route, call)))  # type: ignore[misc]
    measure("prepare and prompt hash", lambda: run_without_waiting(prepare(plain, call)).prompt_sha256)
    for name, route in routes.items():
        measure(f"all stages ({name})", partial(all_stages, route))


def measure_stream() -> None:
    """From the bytes of an event to the client's frame, per event."""
    parser, cutter, fold = SseParser(), StopCutter(STOPS), CompletionBuilder()
    delta, scored = Delta(0, " hello"), Delta(0, " hello", (TokenLogprob(" hello", -0.1),))
    possible_stop = Delta(0, " 1 < 2\n")
    events, batch = EVENT * 100, [delta]
    reader, chunk = ChunkReader(COMPLETIONS_FORMAT, "m/0", 1), orjson.loads(EVENT[6:])
    writer = ChatWriter(AnswerHead(id="chatcmpl-1", model="m", created=1, include_usage=False))
    reader.read(chunk)
    measure("SSE: one event per read", lambda: parser.feed(EVENT))
    measure("SSE: 100 events per read", lambda: parser.feed(events), 100)
    measure("json: one chunk", lambda: orjson.loads(EVENT[6:]))
    measure("read: one chunk", lambda: reader.read(chunk))
    measure("cut: no text held back", lambda: cutter.process(batch))
    measure("cut: no text held back, with logprobs", lambda: cutter.process([scored]))
    measure("cut: the end of the text is held back", lambda: cutter.process([possible_stop]))
    measure("cut: a new cutter and the finish event", lambda: StopCutter(STOPS).process([Finish(0, "stop")]))
    measure("fold: one delta", lambda: fold.add(delta))
    measure("write: a batch of one", lambda: writer.frames(batch))


def _finished_timeline() -> CallTimeline:
    timeline = CallTimeline("chat", "req_0123456789abcdef0123456789abcdef", time.monotonic())
    timeline.model, timeline.template, timeline.kind = "m", "chatml", "meta"
    timeline.admitted()
    timeline.render = 0.00001
    timeline.backend_opening(AttemptLog())
    timeline.events_received((Begun("m/0"), Delta(0, "42"), Finish(0, "stop"), Usage(31, 2)))
    timeline.backend_closed()
    return timeline


def measure_after() -> None:
    """Record, metrics and log line of a finished call; the log is written to ``/dev/null``."""
    metrics, timeline = Metrics(), _finished_timeline()
    timeline.end("ok", 200)

    def count_in_flight() -> None:
        in_flight = metrics.in_flight["chat", "m"]
        in_flight.value += 1
        in_flight.value -= 1

    log_writer, calls = logging.getLogger().handlers[0], count(1)

    def write_log_line() -> None:
        log_call(timeline)
        if not next(calls) % LINES_PER_WRITE:
            log_writer.flush()

    def all_stages() -> None:
        timeline.end("ok", 200)
        metrics.record(timeline)
        write_log_line()

    measure("timeline: create", lambda: CallTimeline("chat", "req_1", 0.0))
    measure("in-flight gauge: increment and decrement", count_in_flight)
    measure("timeline: complete the record", lambda: timeline.end("ok", 200))
    measure("metrics", lambda: metrics.record(timeline))
    measure("log line", write_log_line)
    measure("all stages", all_stages)


def measure_keys() -> None:
    """A client key among a thousand, and its model patterns."""
    specs = [KeySpec(f"k{i}", sha256(f"gk_{i}".encode()).hexdigest(), ("a-*", "b-*", "m*")) for i in range(1000)]
    ring = Keyring(specs, ("m", "n"))
    caller = ring.authenticate("Bearer gk_500")
    measure("key: authenticate", lambda: ring.authenticate("Bearer gk_500"))
    measure("key: check a model", lambda: caller.may_use("m"))


PARTS: dict[str, Callable[[], None]] = {
    **{name: partial(measure_request, request) for name, request in REQUESTS.items()},
    "stream": measure_stream,
    "after": measure_after,
    "keys": measure_keys,
}


async def main(part: str | None, log: TextIO) -> None:
    """Measure one part, or all of them; the log is set up as in ``gateway serve``, inside an event loop."""
    logging.basicConfig(level=logging.INFO, handlers=[LogWriter(log.write)])
    for name, measure_part in PARTS.items():
        if part in (None, name):
            print(name)
            measure_part()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("part", nargs="?", choices=PARTS, help="default: all parts")
    with Path(os.devnull).open("w", encoding="utf-8") as devnull:
        asyncio.run(main(arguments.parse_args().part, devnull))
