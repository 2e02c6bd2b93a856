"""A real gateway for tests: on a free loopback port, in a thread with its own event loop."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
import uvloop
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import ASGIApp

from gateway.edge.app import App
from gateway.edge.http1.server import HttpServer
from gateway.server.application import create_app
from gateway.server.reload import ConfigLoader
from gateway.server.runtime import Runtime
from gateway.server.sockets import bind
from gateway.telemetry.metric_definitions import METRICS

ROOT = Path(__file__).resolve().parent.parent.parent


WAIT_SECONDS = 100.0
"""Seconds to wait for a condition before the test fails; far more than a busy machine needs."""

Handling = Coroutine[Any, Any, None]
"""The coroutine that handles one request."""

NUMBERS = {row.name: row.labels for row in METRICS if row.kind != "histogram"}
"""Counter or gauge → its labels."""


def bearer(key: str) -> dict[str, str]:
    """The header of a client key."""
    return {"authorization": f"Bearer {key}"}


class HttpGateway:
    """A running gateway of which only the address is known; ``url`` ends in ``/v1``."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.root = f"http://127.0.0.1:{port}"
        self.url = f"{self.root}/v1"
        self.http = httpx.Client(base_url=self.root, timeout=60, trust_env=False, verify=False)

    def chat(self, model: str, content: Any = "hi", key: Any = "", **fields: Any) -> httpx.Response:
        """Send a chat request with one user message, and with a client key."""
        body = {"model": model, "messages": [{"role": "user", "content": content}], **fields}
        return self.http.post("/v1/chat/completions", json=body, headers=bearer(key) if key else {})

    def metric(self, name: str, **labels: str) -> float:
        """The value of a series; 0 if there is none yet."""
        families = text_string_to_metric_families(self.http.get("/metrics").text)
        samples = [sample for family in families for sample in family.samples]
        return next((one.value for one in samples if one.name == name and one.labels == labels), 0.0)

    def counted(self, name: str, **labels: str) -> float:
        """The value of a series that calls count at their end, when all calls have ended.

        A client may read the end of its answer before the call is counted.
        """
        assert self.wait_until_idle()
        return self.metric(name, **labels)

    def running(self) -> float:
        """The number of calls in flight."""
        families = text_string_to_metric_families(self.http.get("/metrics").text)
        return sum(one.value for family in families for one in family.samples if one.name == "gateway_in_flight")

    def disconnect(self, body: Mapping[str, object], when: Callable[[], bool], **headers: str) -> None:
        """Send a chat request on a connection of its own, and close the connection as soon as ``when()`` is true.

        A client's timeout would be shorter than the time that a busy machine needs to read the request.
        """
        content = json.dumps(body)
        fields = {"host": "127.0.0.1", "content-type": "application/json", "content-length": len(content), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as link:
            link.sendall(f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n{content}".encode())
            assert eventually(when)

    def wait_until_idle(self, seconds: float = WAIT_SECONDS) -> bool:
        """Wait until no call is in flight; False if one still is after ``seconds``."""
        return eventually(lambda: not self.running(), seconds)


class Gateway(HttpGateway):
    """A gateway on our own HTTP server in this process."""

    def __init__(self, runtime: Runtime, port: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(port)
        self.runtime = runtime
        self.folder = runtime.loader.path.parent
        self._loop = loop

    def reload(self) -> bool:
        """Read the configuration's files now, as on SIGHUP; the watcher of the files would take two seconds."""
        return asyncio.run_coroutine_threadsafe(self.runtime.reload(), self._loop).result(WAIT_SECONDS)

    def metric(self, name: str, **labels: str) -> float:
        """See ``HttpGateway``; no request is made."""
        if name in NUMBERS:  # the registry makes the families of all metrics, which takes long with many models
            assert labels.keys() == set(NUMBERS[name]), f"{name} has the labels {NUMBERS[name]}"
            series = self.runtime.metrics.snapshot().series[name]
            return series.get(tuple(labels[label] for label in NUMBERS[name]), [0.0])[0]
        registry = CollectorRegistry()
        registry.register(self.runtime.metrics.snapshot())
        value = registry.get_sample_value(name, labels)
        return 0.0 if value is None else value

    def running(self) -> float:
        """See ``HttpGateway``; no request is made."""
        return sum(series.value for series in list(self.runtime.metrics.in_flight.values()))


def eventually(condition: Any, seconds: float = WAIT_SECONDS) -> bool:
    """Wait until ``condition()`` is true; False if it is not within ``seconds``.

    It is asked after 5 ms, then less often, at last every 50 ms: a question may cost the gateway more than a call.
    """
    end, pause = time.monotonic() + seconds, 0.005
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)
    return bool(condition())


Files = Mapping[str, str | Path]
"""The files of a folder: a path in it, and a text or the file or folder to copy."""


def write_files(folder: Path, files: Files) -> None:
    """Write files into a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        elif content.is_dir():
            shutil.copytree(content, path)
        else:
            shutil.copyfile(content, path)


@contextmanager
def gateway(
    folder: Path,
    config: str,
    env: Mapping[str, str] | None = None,
    *,
    files: Files | None = None,
    around: Callable[[Handling], Handling] = lambda handling: handling,
) -> Iterator[Gateway]:
    """Serve ``config`` (the text of a gateway.yaml) from ``folder``, into which ``files`` are written.

    ``around``: receives the coroutine that handles a request, and returns the one to run.
    """
    path = folder / "gateway.yaml"
    write_files(folder, {"gateway.yaml": config, **(files or {})})
    loader = ConfigLoader(path, env or {})
    runtime, snapshot = Runtime(loader), loader.load()
    bound = bind("127.0.0.1", 0)
    bound.listen(512)
    ready = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    stop: list[Callable[[], object]] = []
    failure: list[BaseException] = []

    async def serve() -> None:
        await runtime.start(snapshot)
        loop, leave = asyncio.get_running_loop(), asyncio.Event()
        app = App(runtime.state, viewer=runtime.open_pages())
        server = HttpServer(lambda request: around(app(request)), refused=app.refused_input, limited_by=runtime.state)
        await server.open([bound], runtime.certificate.context if runtime.certificate else None)
        loops.append(loop)
        stop.append(lambda: loop.call_soon_threadsafe(leave.set))
        ready.set()
        try:
            await leave.wait()
            server.drain()
            await server.wait_closed(snapshot.server.drain)
        finally:
            await runtime.stop()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())
        except BaseException as error:
            failure.append(error)
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(WAIT_SECONDS)
    if failure:
        raise failure[0]
    served = Gateway(runtime, bound.getsockname()[1], loops[0])
    try:
        yield served
    finally:
        served.http.close()
        stop[0]()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive(), "the gateway did not stop"
        if failure:
            raise failure[0]


@contextmanager
def run_uvicorn(app: ASGIApp) -> Iterator[int]:
    """Run an application in a real uvicorn in a thread; yields its port."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", ws="none", server_header=False))
        thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
        thread.start()
        try:
            assert eventually(lambda: server.started)
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive(), "uvicorn did not stop"


@contextmanager
def asgi_gateway(folder: Path, config: str, *, files: Files | None = None) -> Iterator[HttpGateway]:
    """As ``gateway``, by the ASGI application in uvicorn."""
    write_files(folder, {"gateway.yaml": config, **(files or {})})
    with run_uvicorn(create_app(folder / "gateway.yaml", {})) as port:
        served = HttpGateway(port)
        try:
            yield served
        finally:
            served.http.close()


SERVERS = {"own": gateway, "asgi": asgi_gateway}
"""The two ways to serve a configuration: our own HTTP server, and the ASGI application."""
