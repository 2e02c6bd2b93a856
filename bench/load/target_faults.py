"""One of three targets fails under load: ``python -m bench.load.target_faults [--out docs/target-faults.svg]``.

Three engines stand behind one gateway, and 300 streamed calls start each second, whether or not earlier calls have
ended. From second 4 to second 10 the second engine is killed, stopped (it accepts calls and never answers), slowed
down, or made to fail in every other half second. Each fault meets four configurations: nothing, retries, retries with a
circuit breaker, and both with health checks. The picture has the share of calls served in each second, and the 99th
percentile of their durations. About five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from bench.gateway_variants import ROOT
from bench.processes import LOAD_CORE, SYSTEM_CORE, ChildProcess, free_port, set_up_process

RATE = 300
SECONDS, FAULT_AT, MENDED_AT = 16, 4, 10
ENGINE_DELAY, SLOW_DELAY = 0.02, 0.5
"""Seconds before each of the events of an engine's stream."""
CLIENT_TIMEOUT = 5.0

FAULTS = ("killed", "hung", "slow", "flapping")
TIMEOUTS = "timeout: {first_token: 1s, idle: 5s, total: 20s}"
OFF = "breaker: {failures: 1000}"
BREAKER = "breaker: {failures: 5, successes: 2, open: 2s, window: 60s}"
CHECKS = "health_check: {path: /health, interval: 500ms, timeout: 500ms}"
CONFIGURATIONS: Mapping[str, str] = {
    "nothing": f"{TIMEOUTS}, {OFF}, retry: {{attempts: 1}}",
    "retries": f"{TIMEOUTS}, {OFF}",
    "and circuit breaker": f"{TIMEOUTS}, {BREAKER}",
    "and health checks": f"{TIMEOUTS}, {BREAKER}, {CHECKS}, balance: least_busy",
}


# ---------------------------------------------------------------- the engine


async def serve_engine(port: int) -> None:
    """Answer POST with a short stream, and GET with 200. SIGUSR1: slow; SIGUSR2: flapping; SIGHUP: mended."""
    mode = ""

    def set_mode(name: str) -> None:
        nonlocal mode
        mode = name

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0
                )
                await reader.readexactly(length)
                if head.startswith(b"GET"):
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                elif mode == "flapping" and int(time.monotonic() * 2) % 2:
                    writer.write(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\n{}")
                else:
                    await _stream(writer, SLOW_DELAY if mode == "slow" else ENGINE_DELAY)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    loop = asyncio.get_running_loop()
    for number, name in ((signal.SIGUSR1, "slow"), (signal.SIGUSR2, "flapping"), (signal.SIGHUP, "")):
        loop.add_signal_handler(number, set_mode, name)
    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


async def _stream(writer: asyncio.StreamWriter, delay: float) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for delta, finish in (({"content": "one"}, None), ({"content": " two"}, None), ({}, "stop")):
        await asyncio.sleep(delay)
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        event = f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n".encode()
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    await writer.drain()


# ---------------------------------------------------------------- the load


@dataclass
class Outcome:
    """Calls by the second in which they began."""

    calls: list[int] = field(default_factory=lambda: [0] * SECONDS)
    served: list[int] = field(default_factory=lambda: [0] * SECONDS)
    durations: list[list[float]] = field(default_factory=lambda: [[] for _ in range(SECONDS)])

    def share(self) -> float:
        """The share of all calls that were served."""
        return sum(self.served) / sum(self.calls)

    def p99(self, second: int) -> float:
        """The 99th percentile of the durations of one second, in seconds."""
        times = sorted(self.durations[second])
        return times[min(len(times) - 1, int(len(times) * 0.99))] if times else 0.0


async def run_calls(port: int, at: Mapping[float, Sequence[object]]) -> Outcome:
    """Start calls at a fixed rate. ``at``: second → (function, arguments) to run then."""
    outcome, begin, tasks = Outcome(), time.monotonic(), set[asyncio.Task[None]]()
    pending = dict(at)
    for number in range(RATE * SECONDS):
        moment = number / RATE
        for second in [one for one in pending if one <= moment]:
            function, *arguments = pending.pop(second)
            assert callable(function)
            function(*arguments)
        await asyncio.sleep(max(0.0, begin + moment - time.monotonic()))
        task = asyncio.create_task(_call(port, outcome, int(moment)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return outcome


async def _call(port: int, outcome: Outcome, second: int) -> None:
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    started, data = time.monotonic(), b""
    try:
        async with asyncio.timeout(CLIENT_TIMEOUT):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head + b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            data = await reader.read()
            writer.close()
    except (TimeoutError, OSError):
        data = b""
    outcome.calls[second] += 1
    outcome.durations[second].append(time.monotonic() - started)
    outcome.served[second] += b" two" in data and b'"error"' not in data


class Engines:
    """Three engine processes, of which the second gets a fault."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ports = [free_port() for _ in range(3)]
        self._children = [self._start(port) for port in self.ports]

    def _start(self, port: int) -> ChildProcess:
        command = [sys.executable, "-m", "bench.load.target_faults", "--engine", str(port)]
        return ChildProcess(command, LOAD_CORE, self._folder / "engine.log", cwd=ROOT)

    def break_one(self, fault: str) -> None:
        """Give the second engine its fault."""
        signals = {
            "killed": signal.SIGKILL,
            "hung": signal.SIGSTOP,
            "slow": signal.SIGUSR1,
            "flapping": signal.SIGUSR2,
        }
        self._children[1].popen.send_signal(signals[fault])

    def mend_one(self, fault: str) -> None:
        """Take the fault away."""
        if fault == "killed":
            self._children[1] = self._start(self.ports[1])
        else:
            self._children[1].popen.send_signal(signal.SIGCONT if fault == "hung" else signal.SIGHUP)

    def stop(self) -> None:
        """End the processes."""
        for child in self._children:
            child.popen.send_signal(signal.SIGCONT)
            child.__exit__(None, None, None)


def measure(configuration: str, fault: str, folder: Path) -> Outcome:
    """Run one fault against one configuration."""
    with ExitStack() as stack:
        engines = Engines(folder)
        stack.callback(engines.stop)
        (folder / "policies").mkdir(exist_ok=True)
        (folder / "policies" / "p.yaml").write_text(
            f"delivery: {{{CONFIGURATIONS[configuration]}}}\n", encoding="utf-8"
        )
        targets = ", ".join(f'{{speaks: chat, url: "http://127.0.0.1:{port}/v1"}}' for port in engines.ports)
        config = folder / "gateway.yaml"
        config.write_text(f"models: {{m: {{template: chat, policy: p, targets: [{targets}]}}}}\n", encoding="utf-8")
        port = free_port()
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(config)]
        env = {"GATEWAY_SERVER__PORT": str(port)}
        stack.enter_context(ChildProcess(command, SYSTEM_CORE, folder / "gateway.log", env, ROOT))
        asyncio.run(_until_ready(port))
        return asyncio.run(
            run_calls(port, {FAULT_AT: (engines.break_one, fault), MENDED_AT: (engines.mend_one, fault)})
        )


async def _until_ready(port: int) -> None:
    outcome = Outcome()
    async with asyncio.timeout(30):
        while not outcome.served[0]:
            await asyncio.sleep(0.1)
            await _call(port, outcome, 0)


# ---------------------------------------------------------------- the picture

WIDTH, HEIGHT, LEFT, TOP, GAP = 190, 90, 90, 60, 34
SERVED_COLOUR, DURATION_COLOUR = "#2563eb", "#d97706"
LONGEST = CLIENT_TIMEOUT
"""The top of the scale of durations, in seconds."""


def svg(results: Mapping[str, Mapping[str, Outcome]]) -> str:
    """One row for each fault, one column for each configuration."""
    width, height = LEFT + len(CONFIGURATIONS) * (WIDTH + GAP), TOP + len(results) * (HEIGHT + GAP) + 10
    style = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {style}>'
    legend = (
        f'<text x="{LEFT}" y="16" fill="{SERVED_COLOUR}">calls served in each second, 0 to 100 %</text>'
        f'<text x="{LEFT + 250}" y="16" fill="{DURATION_COLOUR}">99th percentile of durations, to {LONGEST:g} s</text>'
        f'<text x="{LEFT + 540}" y="16" fill="#6b7280">grey: one of three targets fails</text>'
    )
    parts = [head, f'<rect width="{width}" height="{height}" fill="white"/>', legend]
    for row, (fault, outcomes) in enumerate(results.items()):
        y = TOP + row * (HEIGHT + GAP)
        parts.append(f'<text x="8" y="{y + HEIGHT / 2}" font-weight="bold">{escape(fault)}</text>')
        for column, (name, outcome) in enumerate(outcomes.items()):
            x = LEFT + column * (WIDTH + GAP)
            parts += _panel(x, y, f"{name}: {outcome.share():.2%} served", outcome)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(x: float, y: float, title: str, outcome: Outcome) -> list[str]:
    step = WIDTH / (SECONDS - 1)
    served = [done / calls for done, calls in zip(outcome.served, outcome.calls, strict=True)]
    slow = [min(outcome.p99(second) / LONGEST, 1.0) for second in range(SECONDS)]

    def line(values: Sequence[float], colour: str) -> str:
        points = " ".join(f"{x + n * step:.1f},{y + HEIGHT * (1 - value):.1f}" for n, value in enumerate(values))
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'

    fault = f'<rect x="{x + FAULT_AT * step:.1f}" y="{y}" width="{(MENDED_AT - FAULT_AT) * step:.1f}" height="{HEIGHT}"'
    return [
        f'{fault} fill="#e5e7eb"/>',
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#9ca3af"/>',
        f'<text x="{x}" y="{y - 5}">{escape(title)}</text>',
        line(slow, DURATION_COLOUR),
        line(served, SERVED_COLOUR),
    ]


def main() -> None:
    """Measure all faults and configurations, print a table and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=int, metavar="PORT", help="be an engine")
    parser.add_argument("--out", type=Path, default=Path("docs/target-faults.svg"))
    options = parser.parse_args()
    if options.engine:
        asyncio.run(serve_engine(options.engine))
        return
    set_up_process()
    results: dict[str, dict[str, Outcome]] = {}
    for fault in FAULTS:
        results[fault] = {}
        for configuration in CONFIGURATIONS:
            with tempfile.TemporaryDirectory() as folder:
                results[fault][configuration] = one = measure(configuration, fault, Path(folder))
            during = max(one.p99(second) for second in range(FAULT_AT, MENDED_AT))
            print(f"{fault:9} {configuration:20} served {one.share():8.3%}  worst p99 {during:.2f} s", flush=True)
    options.out.write_text(svg(results), encoding="utf-8")


if __name__ == "__main__":
    main()
