"""The processes of one run: mock upstreams and systems under test, started when first needed, stopped at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import install_peers
from bench.gateway_variants import ROOT
from bench.load.http_client import request_json, send_request
from bench.processes import LOAD_CORE, SYSTEM_CORE, ChildProcess, MeasurementError, cpu_seconds, free_port
from bench.scenarios import Scenario, request_body
from bench.systems import LaunchContext, System, environment, nginx_command
from bench.upstream.responses import RESPONSES, response_json

POLL_INTERVAL = 0.002
UPSTREAM_START_TIMEOUT = 15.0


@dataclass(frozen=True, slots=True)
class Upstream:
    """A mock upstream: nginx for non-streamed responses, or ``bench.upstream.server``."""

    port: int
    is_nginx: bool

    def request_count(self) -> int:
        """Requests so far; nginx also counts health checks and the requests of this method."""
        if self.is_nginx:
            status, text = send_request(self.port, "/bench/counters")
            # the third line of nginx's stub_status: accepts, handled, requests
            return int(text.split(b"\n")[2].split()[2]) if status == 200 else 0
        return sum(request_json(self.port, "/bench/counters")["requests"].values())

    def configure_streams(self, scenario: Scenario) -> None:
        """Set the number of events and their interval for later streams."""
        request_json(self.port, "/bench/streams", {"events": scenario.events, "interval_ms": scenario.interval_ms})


@dataclass(frozen=True, slots=True)
class RunningSystem:
    """A system that responds."""

    system: System
    context: LaunchContext
    upstream: Upstream
    session: int
    """Session id of its processes; 0 for ``direct``, where the load goes to the upstream."""
    ready_seconds: float
    """From start to the first response."""

    def cpu_seconds(self) -> float:
        """CPU time of its processes so far."""
        return cpu_seconds(self.session)

    def headers(self) -> dict[str, str]:
        """Request headers."""
        return dict(self.system.headers(self.context))

    def write_request_body(self, scenario: Scenario, stream: bool) -> Path | None:
        """Write the request body of a scenario to a file; None for a path that takes none."""
        body = request_body(scenario, self.system.path, self.system.extra_fields, stream)
        if body is None:
            return None
        path = self.context.folder / f"{scenario.name}.json"
        path.write_bytes(body)
        return path


class Testbed:
    """Starts upstreams and systems; a context manager that stops them."""

    def __init__(self, cache: Path, folder: Path, install: bool = True) -> None:
        """Without ``install`` the nginx upstream is not installed, and ``bench.upstream.server`` takes its place."""
        self._cache = cache
        self._folder = folder
        self._install = install
        self._upstream_processes = ExitStack()
        self._system_processes = ExitStack()
        self._upstreams: dict[bool, Upstream] = {}
        self._systems: dict[tuple[str, bool], RunningSystem | MeasurementError] = {}
        self._folders = 0

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop_systems()
        finally:
            self._upstream_processes.close()

    def stop_systems(self) -> None:
        """Stop all systems; the next scenario starts new processes."""
        self._systems.clear()
        self._system_processes.close()

    def upstream(self, *, streaming: bool) -> Upstream:
        """The upstream for streams, or the one for non-streamed responses."""
        if streaming not in self._upstreams:
            self._upstreams[streaming] = self._start_stream_server() if streaming else self._start_nginx()
        return self._upstreams[streaming]

    def running_system(self, system: System, *, streaming: bool) -> RunningSystem:
        """The system, started on first use. Raises ``MeasurementError``, also on every call after a failed start."""
        key = (system.name, streaming)
        if key not in self._systems:
            try:
                self._systems[key] = self._system_processes.enter_context(
                    self.start_system(system, streaming=streaming)
                )
            except MeasurementError as error:
                self._systems[key] = error
        found = self._systems[key]
        if isinstance(found, MeasurementError):
            raise found
        return found

    @contextmanager
    def start_system(self, system: System, *, streaming: bool) -> Iterator[RunningSystem]:
        """Start a new process of a system; it is stopped on leaving."""
        upstream = self.upstream(streaming=streaming)
        folder = self.new_folder(system.name)
        if system.command is None:
            yield RunningSystem(
                system, LaunchContext(self._cache, folder, upstream.port, 0, upstream.port), upstream, 0, 0.0
            )
            return
        context = LaunchContext(self._cache, folder, free_port(), free_port(), upstream.port)
        command = system.command(context)
        with ChildProcess(command, SYSTEM_CORE, folder / "log", environment(system), system.checkout) as child:
            seconds = _wait_until_ready(system, context, upstream, child)
            yield RunningSystem(system, context, upstream, child.session, seconds)

    def new_folder(self, name: str) -> Path:
        """A new empty folder."""
        self._folders += 1
        folder = self._folder / f"{self._folders:03}-{name.replace('/', '_')}"
        folder.mkdir(parents=True)
        return folder

    def _start_stream_server(self) -> Upstream:
        port = free_port()
        command = [sys.executable, "-m", "bench.upstream.server", "--port", str(port)]
        return self._start_upstream(command, self.new_folder("upstream"), Upstream(port, is_nginx=False))

    def _start_nginx(self) -> Upstream:
        try:
            binary = install_peers.nginx(self._cache / "nginx") if self._install else None
        except MeasurementError as error:
            print(f"no nginx ({error}); the Python upstream takes its place and limits throughput", file=sys.stderr)
            binary = None
        if binary is None:
            return self.upstream(streaming=True)
        port, folder = free_port(), self.new_folder("upstream-nginx")
        locations = "".join(f"    location = {path} {{ return 200 '{response_json(path)}'; }}\n" for path in RESPONSES)
        servers = (
            f"  server {{\n    listen 127.0.0.1:{port} backlog=4096;\n{locations}"
            "    location = /bench/counters { stub_status; }\n    location / { return 404 '{}'; }\n  }"
        )
        return self._start_upstream(nginx_command(binary, folder, servers), folder, Upstream(port, is_nginx=True))

    def _start_upstream(self, command: list[str], folder: Path, upstream: Upstream) -> Upstream:
        child = self._upstream_processes.enter_context(ChildProcess(command, LOAD_CORE, folder / "log", cwd=ROOT))
        while time.monotonic() < child.started + UPSTREAM_START_TIMEOUT:
            child.check_alive()
            try:
                if send_request(upstream.port, "/health")[0] == 200:
                    return upstream
            except OSError:
                time.sleep(POLL_INTERVAL)
        raise MeasurementError(f"the upstream was not ready after {UPSTREAM_START_TIMEOUT:.0f} s")


READINESS_REQUEST = Scenario("readiness", "readiness", "one small request", "nonstream", ())


def _wait_until_ready(system: System, context: LaunchContext, upstream: Upstream, child: ChildProcess) -> float:
    """Send requests until one succeeds and has reached the upstream; returns the seconds since the start."""
    body = request_body(READINESS_REQUEST, system.path, system.extra_fields, stream=False)
    headers = {"content-type": "application/json", **system.headers(context)}
    status, content, count_before = 0, b"", upstream.request_count()
    while time.monotonic() < child.started + system.start_timeout:
        child.check_alive()
        try:
            status, content = send_request(context.port, system.path, body, headers)
        except OSError:
            status = 0
        if status == 200:
            seconds = time.monotonic() - child.started
            own_requests = 1 if upstream.is_nginx else 0  # the request that reads nginx's counter
            if body is not None and upstream.request_count() - count_before <= own_requests:
                raise MeasurementError("it responds, but no request reaches the upstream")
            return seconds
        time.sleep(POLL_INTERVAL)
    last = f"; last response: {status} {content[:160].decode('utf-8', 'replace')}" if status else ""
    raise MeasurementError(f"not ready after {system.start_timeout:.0f} s{last}")
