"""What is running? The lab starts upstreams and subjects when they are first needed, and ends every one of them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import install
from bench.answers import WHOLE, text_of
from bench.ask import ask, ask_json
from bench.processes import LOAD, PROXY, Child, Unfit, free_port, running
from bench.scenarios import Scenario, body
from bench.subjects import Place, Subject, environment, nginx_command
from bench.variants import ROOT

POLL = 0.002
READY = 15.0
"""Seconds an upstream may take to be ready."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An upstream, and how to count what reached it."""

    port: int
    fast: bool

    def hits(self) -> int:
        """Requests so far, health checks included."""
        if self.fast:
            status, text = ask(self.port, "/bench/counters")
            # the third line of nginx's stub_status: accepts, handled, requests (this one too)
            return int(text.split(b"\n")[2].split()[2]) if status == 200 else 0
        return sum(ask_json(self.port, "/bench/counters")["hits"].values())

    def pace(self, scenario: Scenario) -> None:
        """Let later streams have this many events, so far apart."""
        ask_json(self.port, "/bench/pace", {"events": scenario.events, "gap_ms": scenario.gap_ms})


@dataclass(frozen=True, slots=True)
class Running:
    """A subject that answers."""

    subject: Subject
    place: Place
    engine: Engine
    child: Child | None
    started: float
    """Seconds from its start to its first answer."""

    @property
    def session(self) -> int:
        """Its processes' session; 0 where the upstream itself is the subject."""
        return self.child.session if self.child else 0


class Lab:
    """One run of the suite."""

    def __init__(self, cache: Path, folder: Path, fetch: bool = True) -> None:
        """``fetch``: install what is missing; without it nginx is not fetched and Python serves whole answers too."""
        self.cache = cache
        self.folder = folder
        self._fetch = fetch
        self._stack = ExitStack()
        self._subjects = ExitStack()
        self._engines: dict[str, Engine] = {}
        self._running: dict[tuple[str, str], Running | Unfit] = {}
        self._number = 0

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.rest()
        finally:
            self._stack.close()

    def rest(self) -> None:
        """End the subjects; a scenario begins with new ones, and none of the last one's in the background."""
        self._running.clear()
        self._subjects.close()

    def engine(self, fast: bool) -> Engine:
        """The upstream for whole answers, or the one for streams."""
        name = "fast" if fast else "paced"
        if name not in self._engines:
            self._engines[name] = self._start_fast() if fast else self._start_paced()
        return self._engines[name]

    def started(self, subject: Subject, fast: bool) -> Running:
        """The subject, running before that upstream; ``Unfit`` each time if it could not be started once."""
        key = (subject.name, "fast" if fast else "paced")
        if key not in self._running:
            try:
                self._running[key] = self._subjects.enter_context(self.fresh(subject, fast))
            except Unfit as reason:
                self._running[key] = reason
        found = self._running[key]
        if isinstance(found, Unfit):
            raise found
        return found

    @contextmanager
    def fresh(self, subject: Subject, fast: bool) -> Iterator[Running]:
        """A new process of a subject; ended on leaving."""
        engine = self.engine(fast)
        if subject.command is None:
            place = Place(self.cache, self.new_folder(subject.name), engine.port, 0, engine.port)
            yield Running(subject, place, engine, None, 0.0)
            return
        place = Place(self.cache, self.new_folder(subject.name), free_port(), free_port(), engine.port)
        command = subject.command(place)
        child = Child(command, PROXY, place.folder / "log", environment(subject), subject.home)
        with running(child):
            yield self._ready(subject, place, engine, child)

    def request_file(self, run: Running, scenario: Scenario, stream: bool) -> Path | None:
        """The file with a subject's request for a scenario."""
        text = body(scenario, run.subject.path, run.subject.extra, stream)
        if text is None:
            return None
        path = run.place.folder / f"{scenario.name}.json"
        path.write_bytes(text)
        return path

    def _ready(self, subject: Subject, place: Place, engine: Engine, child: Child) -> Running:
        """Ask until it answers, and see that the answer came from the engine."""
        request = body(_PROBE, subject.path, subject.extra, stream=False)
        headers = {"content-type": "application/json", **subject.headers(place)}
        status, answer, before = 0, b"", engine.hits()
        while time.monotonic() < child.began + subject.patience:
            child.check()
            try:
                status, answer = ask(place.port, subject.path, request, headers)
            except OSError:
                status = 0
            if status == 200:
                seconds = time.monotonic() - child.began
                own = 1 if engine.fast else 0  # the counting request counts itself
                if request is not None and engine.hits() - before <= own:
                    raise Unfit("it answers, but nothing reaches the upstream")
                return Running(subject, place, engine, child, seconds)
            time.sleep(POLL)
        said = f"; its last answer was {status}: {answer[:160].decode('utf-8', 'replace')}" if status else ""
        raise Unfit(f"not ready after {subject.patience:.0f} s{said}")

    def _start_paced(self) -> Engine:
        port = free_port()
        command = [sys.executable, "-m", "bench.upstream", "--port", str(port)]
        return self._serve(command, self.new_folder("upstream"), Engine(port, fast=False))

    def _start_fast(self) -> Engine:
        try:
            binary = install.nginx(self.cache / "nginx") if self._fetch else None
        except Unfit as reason:
            print(f"no nginx ({reason}); Python serves the whole answers, and bounds what can be seen", file=sys.stderr)
            binary = None
        if binary is None:
            return self.engine(fast=False)
        port, folder = free_port(), self.new_folder("upstream-fast")
        places = "".join(f"    location = {path} {{ return 200 '{text_of(path)}'; }}\n" for path in WHOLE)
        servers = (
            f"  server {{\n    listen 127.0.0.1:{port} backlog=4096;\n{places}"
            "    location = /bench/counters { stub_status; }\n    location / { return 404 '{}'; }\n  }"
        )
        return self._serve(nginx_command(binary, folder, servers), folder, Engine(port, fast=True))

    def _serve(self, command: list[str], folder: Path, engine: Engine) -> Engine:
        child = self._stack.enter_context(running(Child(command, LOAD, folder / "log", cwd=ROOT)))
        while time.monotonic() < child.began + READY:
            child.check()
            try:
                if ask(engine.port, "/health")[0] == 200:
                    return engine
            except OSError:
                time.sleep(POLL)
        raise Unfit(f"the upstream was not ready after {READY:.0f} s")

    def new_folder(self, name: str) -> Path:
        """An empty folder for one use."""
        self._number += 1
        folder = self.folder / f"{self._number:03}-{name.replace('/', '_')}"
        folder.mkdir(parents=True)
        return folder


_PROBE = Scenario("probe", "probe", "one small request", "calls", ())


def headers_json(run: Running) -> str:
    """A subject's headers for a child's command line."""
    return json.dumps(dict(run.subject.headers(run.place)))
