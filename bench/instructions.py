"""Instructions of one call, counted by valgrind's callgrind: ``python -m bench.instructions``.

Seconds vary by a factor of two on shared machines, instructions by less than 1 %. The gateway runs in Debian's Python
with fixed hashes, without its periodic tasks, against an engine in this process, and is counted after a warm-up. The
limits are in ``instructions.json``, by the version of Python. A count of more than 2 % above its limit is
an error: a change that needs more writes new limits (``--write``) and gives the reason in its commit.

The misses of simulated caches stand beside the instructions and have no limit: L1i is a core's instruction cache of
32 KB, L2 its cache of 1 MB for code and data. An instruction costs less time than a miss.

Exit codes: 0, 1 if a count is too high, 3 if valgrind or Debian's Python is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIMITS = Path(__file__).with_suffix(".json")
PYTHON = "/usr/bin/python3.11"
TOLERANCE = 1.02
WARM_UP = 50
CACHES = ("--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64")
"""The simulated caches: size in bytes, associativity, and size of a line in bytes."""
SHORT_STREAM, LONG_STREAM = 20, 220
"""The numbers of events of two streams, whose difference is the cost of the events alone."""
CONFIG = """
models:
  m: {{template: chatml, targets: [{{speaks: completions, url: "http://127.0.0.1:{port}/v1", model: m}}]}}
"""
CHUNK = (
    '{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":%s,"finish_reason":%s}]}'
)
ANSWER = (
    b'{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"The answer is 2.",'
    b'"finish_reason":"stop","logprobs":null}],"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17}}'
)
TURNS = [{"role": ("user", "assistant")[at % 2], "content": f"{at}: What is 17 plus 25?"} for at in range(199)]
QUESTION = [{"role": "user", "content": "What is 1+1? Answer in one sentence."}]


def main() -> int:
    """Count all cases and compare them with the limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the counts as the new limits")
    parser.add_argument("--serve", metavar="FOLDER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(Path(given.serve)))
        return 0
    if not can_count():
        return 3
    version = subprocess.check_output([PYTHON, "-c", "import platform; print(platform.python_version())"], text=True)
    return _report(count_server("bench.instructions", _cases), version.strip(), write=given.write)


def can_count() -> bool:
    """Return whether valgrind and Debian's Python are there. If not, print what is missing."""
    missing = [tool for tool in ("valgrind", "callgrind_control", PYTHON) if shutil.which(tool) is None]
    for tool in missing:
        print(f"instructions are not counted: {tool} is missing (apt-get install valgrind python3)", file=sys.stderr)
    return not missing


def _report(found: dict[str, Counts], version: str, *, write: bool) -> int:
    """Print the counts beside their limits. Returns the exit code."""
    counts = {name: one.instructions for name, one in found.items()}
    all_limits: dict[str, dict[str, int]] = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    limits = all_limits.get(version, {})
    print(f"{f'Python {version}':<36}{'instructions':>12}{'L1i misses':>12}{'L2 misses':>12}   beside the limit")
    for name, one in found.items():
        count = one.instructions
        ratio = f"{count / limits[name]:.3f} of {limits[name]:,}" if name in limits else "no limit"
        print(f"  {name:<34}{count:>12,}{one.l1i_misses:>12,}{one.l2_misses:>12,}   {ratio}")
    if write:
        LIMITS.write_text(json.dumps({**all_limits, version: counts}, indent=2) + "\n")
        return 0
    high = [name for name, count in counts.items() if name in limits and count > TOLERANCE * limits[name]]
    for name in high:
        print(f"{name}: more than 2 % above its limit in {LIMITS.name}", file=sys.stderr)
    return int(bool(high))


@dataclass(frozen=True, slots=True)
class Counts:
    """What one step costs."""

    instructions: int
    l1i_misses: int
    """Misses of the first cache for instructions."""
    l2_misses: int
    """Misses of the second cache, for instructions and for data."""

    def per(self, steps: int) -> Counts:
        """Return the counts of one of several equal steps."""
        return Counts(self.instructions // steps, self.l1i_misses // steps, self.l2_misses // steps)

    def without(self, other: Counts) -> Counts:
        """Return what these counts have more than others."""
        return Counts(
            self.instructions - other.instructions,
            self.l1i_misses - other.l1i_misses,
            self.l2_misses - other.l2_misses,
        )


def count_server(module: str, cases: Callable[[CountedGateway], dict[str, Counts]]) -> dict[str, Counts]:
    """Return the counts of ``cases`` for the server that ``python -m module --serve FOLDER`` starts."""
    with tempfile.TemporaryDirectory() as name:
        folder, engine = Path(name), Engine()
        (folder / "gateway.yaml").write_text(CONFIG.format(port=engine.port))
        with callgrind(["-m", module, "--serve", name], folder / "counts", "--instr-atstart=no", *CACHES) as server:
            assert server.stdout is not None
            gateway = CountedGateway(int(server.stdout.readline()), server.pid, folder, engine)
            for _ in range(WARM_UP):
                gateway.ask(QUESTION)
            return cases(gateway)


@contextmanager
def callgrind(command: list[str], counts: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run Debian's Python under callgrind, with fixed hashes. The counts are written to ``counts``."""
    start = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}", *options, PYTHON]
    path = f"{ROOT}:{sysconfig.get_paths()['purelib']}"
    env = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", "PYTHONPATH": path}
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen([*start, *command], cwd=ROOT, stdout=pipe, stderr=null, text=True, env=env) as child:
        try:
            yield child
        finally:
            child.kill()


def _cases(gateway: CountedGateway) -> dict[str, Counts]:
    large = [{"role": "user", "content": "All work and no play. " * 47_662}]
    for messages in (TURNS, large):
        gateway.ask(messages)
    for burst in (1, 7):
        gateway.ask(QUESTION, SHORT_STREAM * burst, burst)
    gateway.ask(QUESTION, events=0)
    gateway.start_counting()
    return {
        "a plain answer": gateway.count(lambda: gateway.ask(QUESTION), 100),
        "199 messages": gateway.count(lambda: gateway.ask(TURNS), 20),
        "a prompt of 1 MB": gateway.count(lambda: gateway.ask(large), 5),
        "a stream without content events": gateway.count(lambda: gateway.ask(QUESTION, events=0), 50),
        "a stream of 50 events": gateway.count(lambda: gateway.ask(QUESTION, events=50), 20),
        "a streamed event, one a read": count_event(gateway, 1),
        "a streamed event, seven a read": count_event(gateway, 7),
    }


def count_event(gateway: CountedGateway, burst: int) -> Counts:
    """Return the counts of a further event of a stream, with ``burst`` events in each read."""
    short, long = [
        gateway.count(lambda n=events * burst: gateway.ask(QUESTION, n, burst), 10)  # type: ignore[misc]
        for events in (SHORT_STREAM, LONG_STREAM)
    ]
    return long.without(short).per((LONG_STREAM - SHORT_STREAM) * burst)


class CountedGateway:
    """The gateway under callgrind."""

    def __init__(self, port: int, pid: int, folder: Path, engine: Engine) -> None:
        self._pid = pid
        self._engine = engine
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._folder = folder

    def ask(self, messages: list[dict[str, str]], events: int | None = None, burst: int = 1) -> None:
        """Send a chat request. ``events``: the content events of a stream, ``burst`` in each write; None: no stream."""
        body: dict[str, Any] = {"model": "m", "messages": messages, "temperature": 0.7}
        if events is not None:
            body |= {"stream": True, "seed": events, "max_tokens": burst}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        response = self._connection.getresponse()
        answer, tokens = b"", 0
        while line := response.readline():
            answer += line
            tokens += b'" token"' in line
            if tokens == burst and events is not None:  # the gateway has written all that the engine has sent
                tokens = 0
                self._engine.go_on()
        response.read()  # closes the response, so that the connection can be used again
        if response.status != 200 or b'"error"' in answer:
            raise RuntimeError(answer.decode())

    def start_counting(self) -> None:
        """Switch callgrind on. Before, only valgrind slows the gateway down."""
        _control(self._pid, "--instr=on")

    def count(self, step: Callable[[], None], times: int) -> Counts:
        """Return the counts of one step."""
        step()
        _control(self._pid, "--zero")
        for _ in range(times):
            step()
        before = set(self._folder.glob("counts.*"))
        _control(self._pid, "--dump")
        (dump,) = set(self._folder.glob("counts.*")) - before
        text = dump.read_text(errors="replace")
        names, totals = (
            re.search(rf"^(?:{start}): (.+)", text, re.MULTILINE) for start in ("events", "totals|summary")
        )
        assert names is not None
        assert totals is not None
        events = dict(zip(names[1].split(), map(int, totals[1].split()), strict=True))
        misses = events["ILmr"] + events["DLmr"] + events["DLmw"]
        return Counts(events["Ir"], events["I1mr"], misses).per(times)


def _control(pid: int, command: str) -> None:
    subprocess.run(["callgrind_control", command, str(pid)], check=True, capture_output=True)
    time.sleep(0.2)


class Engine:
    """An engine on a free port: a fixed answer, or a stream of ``seed`` content events, ``max_tokens`` in each write.

    After each of these writes the engine waits for ``go_on``, so that the gateway reads each write by itself.
    """

    def __init__(self) -> None:
        ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._run(ready)), daemon=True).start()
        ready.wait()

    def go_on(self) -> None:
        """Let the engine write the next events."""
        self._loop.call_soon_threadsafe(self._read.set)

    async def _run(self, ready: threading.Event) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, limit=4 * 1024 * 1024)
        self.port = server.sockets[0].getsockname()[1]
        self._loop, self._read = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            length = re.search(rb"content-length: (\d+)", head)
            body = json.loads(await reader.readexactly(int(length[1]) if length else 0))
            if not body["stream"]:
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                writer.write(head % len(ANSWER) + ANSWER)  # in one piece, so that the gateway always reads once
                continue
            sent = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            for _ in range(body["seed"] // body["max_tokens"]):
                writer.write(sent + _chunk([CHUNK % ('" token"', "null")] * body["max_tokens"]))
                sent = b""
                await self._read.wait()
                self._read.clear()
            writer.write(sent + _chunk([CHUNK % ('""', '"stop"'), "[DONE]"]) + b"0\r\n\r\n")


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Return the head of the next request in lower case; empty if the gateway has closed the connection."""
    with suppress(asyncio.IncompleteReadError):
        return (await reader.readuntil(b"\r\n\r\n")).lower()
    return b""


def _chunk(events: list[str]) -> bytes:
    """Return one chunk of a chunked body, with server-sent events."""
    data = "".join([f"data: {event}\n\n" for event in events]).encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _serve(folder: Path) -> None:
    """Serve a configuration without periodic tasks, and print the port."""
    from gateway.edge.app import App
    from gateway.edge.http1.server import HttpServer
    from gateway.server.reload import ConfigLoader
    from gateway.server.runtime import Runtime
    from gateway.server.sockets import bind
    from gateway.telemetry import log_writer

    log_writer.WRITE_SECONDS = 3600  # a thread that wakes ten times a second costs more per call on a busy machine
    log_writer.log_to_stderr("info", "text", lambda: None)
    loader = ConfigLoader(folder / "gateway.yaml", {})
    runtime = Runtime(loader)
    runtime.open(loader.load())
    bound = bind("127.0.0.1", 0)
    bound.listen()
    app = App(runtime.state)
    server = HttpServer(app, refused=app.refused_input, limited_by=runtime.state)
    await server.open([bound], None)
    print(bound.getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
