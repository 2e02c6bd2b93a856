"""Sends requests to a gateway in this process, or to a running gateway.

In this process the requests are passed to the same service that ``gateway serve`` runs, with all delivery layers, but
without HTTP. So no port is opened, and no client key is needed.
"""

from __future__ import annotations

import asyncio
import math
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from gateway.backend.embedded.cache import context_length
from gateway.backend.http_client.client import HttpClient, HttpEndpoint, json_headers, server_root
from gateway.backend.openai.upstream_request import read_body
from gateway.calls.admission.access import ROW_HEADER, RUN_HEADER
from gateway.calls.admission.facts import RequestFacts
from gateway.calls.service import Service
from gateway.cli.options import CommandError, print_note
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.snapshot import ModelSpec, Snapshot
from gateway.core.caller import Caller
from gateway.core.errors import UpstreamConnectTimeout, UpstreamDnsError, UpstreamError, UpstreamUnreachable
from gateway.edge.http1.server import HttpServer
from gateway.server.reload import ConfigLoader
from gateway.server.runtime import Runtime
from gateway.storage.recorder import Recorder
from metatemplate.values.words import counted

HEADER_PREFIX = "x-gateway-"
NEVER_CONNECTED = (UpstreamUnreachable, UpstreamDnsError, UpstreamConnectTimeout)


class NoAnswer(Exception):
    """The gateway was reached, but sent no complete answer. ``code`` is the error code in the output line."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class GatewayUnreachable(Exception):
    """No gateway answers at the address."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to one request."""

    status: int
    headers: Mapping[str, str]
    """Lower-case name → value."""
    body: bytes


class GatewayClient(Protocol):
    """Sends requests to a gateway."""

    async def post(self, path: str, body: bytes, row: str = "") -> HttpAnswer:
        """POST a JSON body and return the answer. Raises ``NoAnswer`` and ``GatewayUnreachable``.

        ``row``: the id of the row, for the recording of the gateway.
        """

    @property
    def recorder(self) -> Recorder | None:
        """Writes the recordings of the run. None: this process does not write them."""
        return None


# ---------------------------------------------------------------- in this process


@dataclass(frozen=True, slots=True)
class LocalGateway:
    """The gateway in this process."""

    service: Service
    recorder: Recorder | None
    """Writes the recordings of the run. None: the run has no file of its own."""
    run: str = ""
    """The name of the run in recordings. Empty: the calls name no run."""

    async def post(self, path: str, body: bytes, row: str = "") -> HttpAnswer:
        """Pass a request to the service, and return the answer. See ``GatewayClient.post``.

        See ``until_not_full``.
        """
        await until_not_full(self.recorder)
        facts = RequestFacts(caller=Caller(run=self.run, row=row))
        answer = await self.service.keep_answer(path, body, facts)
        return HttpAnswer(answer.status, {"x-request-id": facts.request_id, **answer.headers}, answer.body)


async def until_not_full(recorder: Recorder | None) -> None:
    """Wait while too many recordings wait to be written, so that none is dropped."""
    if recorder is not None and recorder.is_full:
        await asyncio.shield(asyncio.wrap_future(recorder.written))


@dataclass(frozen=True, slots=True)
class LocalSource:
    """The configuration of a gateway in this process. Files that are edited during the run are not loaded again."""

    config: Path
    snapshot: Snapshot
    recording: Path | None = None
    """The file for the recordings of all calls. None: the policies decide what is recorded."""
    run: str = ""
    """The name of the run in recordings. Empty: the calls name no run."""

    @asynccontextmanager
    async def open(self, concurrency: int) -> AsyncIterator[GatewayClient]:
        """Yield a gateway with the configured models, and close the models at the end.

        Raises ``CommandError`` if the file of recordings cannot be written.
        ``concurrency``: the number of concurrent calls. A lower ``max_in_flight`` is raised to this number.
        """
        server = self.snapshot.server
        server = replace(server, max_in_flight=max(server.max_in_flight, concurrency))
        snapshot = replace(self.snapshot, server=server)
        if self.recording is not None:
            snapshot = recorded(snapshot, self.recording)
        async with running(self.config, snapshot) as runtime:
            recorder = None if self.recording is None else runtime.state.stack.recorder
            if recorder is not None:
                await self._open_file(recorder)
            try:
                yield LocalGateway(Service(runtime.state), recorder, self.run)
            finally:
                if recorder is not None:
                    await asyncio.wrap_future(recorder.flush())
                    note_lost(recorder, self.recording)

    async def _open_file(self, recorder: Recorder) -> None:
        try:
            await asyncio.wrap_future(recorder.open())
        except (OSError, sqlite3.Error) as error:
            raise CommandError(
                f"{self.recording}: the run cannot be recorded in this file: "
                f"{getattr(error, 'strerror', None) or error}; move it away, or add --no-recording"
            ) from None


def note_lost(recorder: Recorder | None, file: Path | None) -> None:
    """Print how many calls of a run could not be written to its file."""
    if recorder is not None and (lost := recorder.not_written):
        print_note(f"{file} lacks {counted(lost, 'call')} of this run, because writing failed; the log has the cause")


@asynccontextmanager
async def running(config: Path, snapshot: Snapshot) -> AsyncIterator[Runtime]:
    """Run the models of a snapshot in this process, and close them at the end."""
    runtime = Runtime(ConfigLoader(config))
    await asyncio.to_thread(runtime.open, snapshot)
    try:
        yield runtime
    finally:
        await runtime.stop()


@asynccontextmanager
async def serving(server: HttpServer, bound: socket.socket, drain: float) -> AsyncIterator[None]:
    """Serve on a bound socket. At the end, running calls have ``drain`` seconds."""
    await server.open([bound])
    try:
        yield
    finally:
        server.drain()
        await server.wait_closed(drain)


def replayed(
    snapshot: Snapshot, names: Collection[str], recording: Path, pace: Literal["none", "recorded"]
) -> Snapshot:
    """Return the snapshot with only the named models, and a recording in place of their targets.

    They have no fallback models, because no other target may answer. See ``ReplayBackend``.
    """
    models = dict[str, ModelSpec]()
    for name, model in snapshot.models.items():
        if name not in names:
            continue
        first = model.targets[0]
        if BACKEND_KINDS[first.speaks].in_process:  # its folder has the tokenizer and the context length
            length = model.max_model_len or context_length(first)
            model = replace(model, tokenizer=model.tokenizer or first.path, max_model_len=length)
        target = replace(
            first,
            speaks="replay",
            replayed=first.speaks,
            file=recording,
            pace=pace,
            url="",
            path=None,
            script=None,
            key=None,
        )
        models[name] = replace(model, targets=(target,), fallback=())
    return replace(snapshot, models=models)


def recorded(snapshot: Snapshot, path: Path) -> Snapshot:
    """Return the snapshot with all calls recorded in a file, without a limit of time, size or waiting recordings."""
    spec = replace(snapshot.recordings, path=path, retention=math.inf, max_size=sys.maxsize, keep_all=True)
    models = {
        name: replace(model, policy=replace(model.policy, record="full")) for name, model in snapshot.models.items()
    }
    return replace(snapshot, recordings=spec, models=models)


# ---------------------------------------------------------------- over HTTP


@dataclass(frozen=True, slots=True)
class RemoteGateway:
    """A running gateway, reached over HTTP."""

    source: RemoteSource
    endpoint: Callable[[str], HttpEndpoint]
    """Path → the endpoint for its requests."""
    recorder: ClassVar[None] = None

    async def post(self, path: str, body: bytes, row: str = "") -> HttpAnswer:
        """Send a request over HTTP, and return the answer. See ``GatewayClient.post``."""
        named = f"{ROW_HEADER.decode()}: {row.encode().decode('latin-1')}\r\n" if self.source.run and row else ""
        try:
            async with asyncio.timeout(self.source.timeout):
                http = await self.endpoint(path).post_idempotent(body, named)
                try:
                    return HttpAnswer(http.status, dict(http.headers()), await read_body(http))
                finally:
                    http.release()
        except TimeoutError:
            raise NoAnswer("timeout", f"the gateway did not answer within {self.source.timeout:g} s") from None
        except NEVER_CONNECTED:
            raise GatewayUnreachable(
                f"no gateway answers at {self.source.base_url}; start it and give the command again"
            ) from None
        except UpstreamError as error:
            raise NoAnswer("no_answer", f"the connection to the gateway failed ({error.code})") from None


@dataclass(frozen=True, slots=True)
class RemoteSource:
    """The address of a running gateway, which ends in ``/v1`` like ``base_url`` in OpenAI's SDK."""

    base_url: str
    key: str | None = field(repr=False)
    """The client key; None if the gateway needs no key."""
    timeout: float
    """The timeout of one request, in seconds."""
    run: str = ""
    """The name of the run in recordings. Empty: the calls name no run, and no row."""
    recording: ClassVar[None] = None
    """The gateway records the run, if its policies say so."""

    @asynccontextmanager
    async def open(self, concurrency: int) -> AsyncIterator[GatewayClient]:
        """Yield a client of the gateway, and close the client's connections at the end. ``concurrency`` is not used."""
        root, client = server_root(self.base_url), HttpClient()
        headers = json_headers(self.key) | ({RUN_HEADER.decode(): self.run} if self.run else {})
        try:
            endpoint = cache(lambda path: client.endpoint(root + path, headers))
            yield RemoteGateway(self, endpoint)
        finally:
            await client.aclose()


GatewaySource = LocalSource | RemoteSource
