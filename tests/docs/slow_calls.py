"""Writes the table of docs/find-a-request.md: ``python -m tests.docs.slow_calls``.

A gateway is called in each of the ways in which a call can be slow, refused, cut off or failed, and the table has what
the log line of the call says. Targets answer when a file exists, so the test decides where the time goes.
tests/docs/test_slow_calls.py plays them again.
"""

from __future__ import annotations

import json
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.journeys.process import Process, serving
from tests.support.serving import ROOT, eventually
from tests.support.upstream.server import FaultyUpstream, refused_url

PAGE = ROOT / "docs/find-a-request.md"
COLUMNS = "| Call | `status` | `outcome` | `attempts` | Where the most time went | Further fields |\n"
TABLE = re.compile(rf"(?<=^{re.escape(COLUMNS)}\|---\|---\|---\|---\|---\|---\|\n)(?:\|.*\n)*", re.MULTILINE)
HOLDS = (0.3, 1.2, 5.0, 20.0)
"""Seconds for which a call is held, one after the other until it is slow where it shall be, also on a busy machine."""
FIELD = re.compile(r' (\w+)=("(?:[^"\\]|\\.)*"|\S+)')
USUAL = ("model", "status", "outcome", "target", "attempts", "seconds", "upstream", "overhead", "tokens")
"""The fields of every line."""
TIMES = ("queue_wait", "upstream_first", "client_wait")
PIECES = 400
"""The events of 60 kB of a stream that is too long for the buffers of a connection."""
POLICIES = {
    "patient": "",
    "queued": "limits: {concurrency: 1, queue_wait: 600s}",
    "impatient": "limits: {concurrency: 1, queue_wait: 500ms}",
    "without-queue": "limits: {concurrency: 1, queue_wait: 0s}",
    "rare": "limits: {requests_per_minute: 1}",
    "cached": "cache: {mode: 'on'}",
    "late": "delivery: {timeout: {connect: 1s, first_token: 1s, idle: 1s, total: 1s}}",
}
HELD = {"queued": 0, "impatient": 0, "without-queue": 0, "whole": 0, "first": 0, "next": 2}
"""Model whose target waits for a file of its name → the tokens that it sends before."""


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Serve the models of ``CASES`` from a folder."""
    with FaultyUpstream() as up:
        modes = {
            "ok": up.url("ok"),
            "rare": up.url("ok"),
            "cached": up.url("ok"),
            "cut": up.url("text", text="The answer is", finish="length"),
            "broken": up.url("500-memory"),
            "backup": refused_url(),
            "late": up.url("hang-headers"),
            "silent": up.url("hang-headers"),
            "breaks": up.url("drop-midstream"),
            "long": up.url("flood", pieces=PIECES),
            **{name: up.url("held", until=folder / name, k=first) for name, first in HELD.items()},
        }
        config = "models:\n"
        for name, url in modes.items():
            policy = name if name in POLICIES else "patient"
            targets = [f'{{speaks: chat, url: "{one}"}}' for one in (url, up.url("ok"))[: 1 + (name == "backup")]]
            config += f"  {name}: {{template: chat, policy: {policy}, targets: [{', '.join(targets)}]}}\n"
        files = {f"policies/{name}.yaml": f"{text}\n" for name, text in POLICIES.items()}
        with serving(folder, {"gateway.yaml": config, **files}) as process:
            yield World(process, up)


class World:
    """A running gateway, its targets, and the files for which they wait."""

    def __init__(self, process: Process, up: FaultyUpstream) -> None:
        self.process = process
        self.up = up
        self._number = 0

    def gate(self, model: str) -> Path:
        """The file that a held target waits for."""
        return self.process.folder / model

    def request(self, model: str, **more: Any) -> tuple[str, dict[str, Any]]:
        """A new id, and the body of a request."""
        self._number += 1
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 64, **more}
        return f"{model}-{self._number}", body

    def send(self, model: str, **more: Any) -> str:
        """Send a request, read the answer, and return its id."""
        name, body = self.request(model, **more)
        self.process.http.post("/v1/chat/completions", json=body, headers={"x-request-id": name})
        return name

    @contextmanager
    def sending(self, model: str, **more: Any) -> Iterator[list[str]]:
        """Send a request in a thread, and wait for its answer at the end. The list gets its id."""
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(self.send(model, **more)))
        thread.start()
        yield found
        thread.join()

    def metric(self, start: str) -> float:
        """The value of the first series that starts so; 0 if there is none."""
        text = self.process.http.get("/metrics").text
        return next((float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(start)), 0.0)

    @contextmanager
    def held(self, model: str, seconds: float) -> Iterator[None]:
        """Wait until the target has a request, run the block, wait some seconds more, and let the target answer."""
        assert eventually(lambda: self.up.active)
        yield
        time.sleep(seconds)
        self.gate(model).touch()

    def line(self, request_id: str) -> str:
        """The log line of a call."""
        start = re.compile(rf"^\S+ \S+ \w+ {request_id} chat .*$", re.MULTILINE)
        assert eventually(lambda: start.search(self.process.log)), self.process.log
        found = start.search(self.process.log)
        assert found is not None
        return found[0]

    @contextmanager
    def connection(self, model: str, **more: Any) -> Iterator[tuple[socket.socket, str, bytes, bytes]]:
        """A connection with a small buffer, and the id, the head and the body of a request."""
        name, body = self.request(model, **more)
        content = json.dumps(body).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-request-id: {name}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        with socket.socket() as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.connect(("127.0.0.1", self.process.port))
            yield link, name, head.encode(), content


def waits_in_the_queue(world: World, seconds: float) -> str:
    """Send a second call while the first one, which has the only slot, is held."""
    with world.sending("queued"), world.held("queued", 0), world.sending("queued") as second:
        assert eventually(lambda: world.metric('gateway_queue_length{key="",model="queued"}'))
        time.sleep(seconds)
        world.gate("queued").touch()
    return second[0]


def waits_too_long(world: World, seconds: float) -> str:
    with world.sending("impatient"), world.held("impatient", 0):
        return world.send("impatient")


def finds_no_slot(world: World, seconds: float) -> str:
    with world.sending("without-queue"), world.held("without-queue", 0):
        return world.send("without-queue")


def waits_for_the_target(model: str, *, stream: bool) -> Callable[[World, float], str]:
    def play(world: World, seconds: float) -> str:
        with world.sending(model, stream=stream) as sent, world.held(model, seconds):
            pass
        return sent[0]

    return play


def reads_slowly(world: World, seconds: float) -> str:
    with world.connection("long", stream=True) as (link, name, head, content):
        link.sendall(head + content)
        assert link.recv(1)
        time.sleep(seconds)
        while link.recv(1 << 20):
            pass
    return name


def sends_slowly(world: World, seconds: float) -> str:
    with world.connection("ok") as (link, name, head, content):
        link.sendall(head)
        time.sleep(seconds)
        link.sendall(content)
        while link.recv(1 << 20):
            pass
    return name


def leaves(world: World, seconds: float) -> str:
    with world.connection("silent") as (link, name, head, content):
        link.sendall(head + content)
        assert eventually(lambda: world.up.active)
        time.sleep(seconds)
    return name


def twice(model: str) -> Callable[[World, float], str]:
    def play(world: World, seconds: float) -> str:
        world.send(model)
        return world.send(model)

    return play


def once(model: str, **more: Any) -> Callable[[World, float], str]:
    return lambda world, seconds: world.send(model, **more)


@dataclass(frozen=True, slots=True)
class Case:
    """A way in which a call can be slow, refused, cut off or failed."""

    play: Callable[[World, float], str]
    """Makes the call, which is held for some seconds where it shall be slow. Returns its id."""
    slow: str = ""
    """Where most of the time goes, as ``largest`` names it. Empty: the call is not held."""


CASES: Mapping[str, Case] = {
    "waited in the queue": Case(waits_in_the_queue, "`queue_wait`"),
    "waited in the queue until it was refused": Case(waits_too_long, "`queue_wait`"),
    "refused, because all slots were taken": Case(finds_no_slot),
    "slow whole answer": Case(waits_for_the_target("whole", stream=False), "`upstream`"),
    "slow first token": Case(waits_for_the_target("first", stream=True), "`upstream_first`"),
    "slow stream after the first token": Case(waits_for_the_target("next", stream=True), "`upstream` after the first"),
    "client reads slowly": Case(reads_slowly, "`client_wait`"),
    "client sends its body slowly": Case(sends_slowly, "`overhead`"),
    "refused by a rate": Case(twice("rare")),
    "refused by the schema": Case(once("ok", temperature="hot")),
    "refused, because the model does not exist": Case(once("unknown")),
    "cut off at `max_tokens`": Case(once("cut", max_tokens=5)),
    "answered by the cache": Case(twice("cached")),
    "target failed, and failed again": Case(once("broken")),
    "target failed, another one answered": Case(once("backup")),
    "target too slow": Case(once("late"), "`upstream`"),
    "stream broke off": Case(once("breaks", stream=True)),
    "client left": Case(leaves, "`upstream`"),
}
"""What happened → how the test makes it happen."""


def largest(times: Mapping[str, float]) -> str:
    """Return which part of a call's time is the longest: ``upstream`` is divided at the first content of a stream."""
    waited = times.get("client_wait", 0.0)
    parts = {"`queue_wait`": times.get("queue_wait", 0.0), "`client_wait`": waited, "`overhead`": times["overhead"]}
    if (first := times.get("upstream_first")) is None:
        parts["`upstream`"] = times["upstream"] - waited
    else:
        parts["`upstream_first`"] = first
        parts["`upstream` after the first"] = times["upstream"] - first - waited
    return max(parts, key=lambda name: parts[name])


@dataclass(frozen=True, slots=True)
class Played:
    """What the log line of a call says."""

    fields: Mapping[str, str]
    times: Mapping[str, float]

    def row(self, slow: str) -> str:
        """The cells of the table, without the name. ``slow``: where most of the time went."""
        further = [
            "`error`" if name == "error" else f"`{name}={value}`"
            for name, value in self.fields.items()
            if name not in (*USUAL, *TIMES)
        ]
        return " | ".join(
            [*[self.fields[name] for name in ("status", "outcome", "attempts")], slow, ", ".join(further)]
        )


def read(line: str) -> Played:
    """Read a log line."""
    fields = dict(FIELD.findall(line))
    times = {name: float(fields[name]) for name in ("seconds", "upstream", "overhead", *TIMES) if name in fields}
    return Played(fields, times)


def play(case: Case, world: World) -> Played:
    """Make a call until it is slow where it shall be, each time held for longer."""
    for seconds in HOLDS:
        for model in HELD:
            world.gate(model).unlink(missing_ok=True)
        played = read(world.line(case.play(world, seconds)))
        if not case.slow or largest(played.times) == case.slow:
            break
    return played


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, world(Path(name)) as running:
        rows = [f"| {name} | {play(case, running).row(case.slow)} |\n" for name, case in CASES.items()]
    PAGE.write_text(TABLE.sub(lambda _: "".join(rows), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
