"""The configuration that one process serves."""

from __future__ import annotations

import asyncio
import time
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

from gateway.assembly import SharedResources, assemble, open_shared_resources
from gateway.calls.service import GatewayState
from gateway.calls.stack import Stack
from gateway.config.snapshot import Snapshot, StoreSpec
from gateway.edge.http_request import HttpRequest
from gateway.policy.access.rates import RateStore
from gateway.server.reload import ConfigLoader, ConfigReloader
from gateway.server.signals import Shutdown
from metatemplate.version import VERSION

VIEWER = "gateway.viewer.viewer:Viewer"
"""The class of the pages. They are above the server, which imports them by name."""
PROBE_SECONDS = 1.0
"""Seconds to wait for an answer of the store, for ``/status``."""
PROBE_AGE = 2.0
"""Seconds for which ``/status`` shows the last result of the store."""


if TYPE_CHECKING:
    from gateway.server.tls import LoadedCertificate, ServerCertificate


class Pages(Protocol):
    """Answers the requests of one listener for ``/`` and below ``/viewer``."""

    async def __call__(self, request: HttpRequest) -> None:
        """Answer one request."""

    def load(self, snapshot: Snapshot) -> None:
        """Import what the pages need that a configuration shows. Blocks the thread."""

    def close(self) -> None:
        """Stop the threads that make pages."""


class Runtime(ConfigReloader):
    """Builds the stack of a configuration, and owns the state that the handlers read."""

    state: GatewayState
    """The state that request handlers read. Set by ``open``."""
    resources: SharedResources
    """Connections, engines and stores that stay open across reloads. Set by ``open``."""
    certificate: ServerCertificate | None = None
    """The certificate of the listeners. Set by ``open`` if the listeners serve HTTPS, else None."""

    def __init__(self, loader: ConfigLoader) -> None:
        super().__init__(loader)
        self.shutdown = Shutdown()
        self.pages: list[Pages] = []
        """The pages of each listener that has any. ``stop`` closes them."""
        self._tasks: list[asyncio.Task[None]] = []
        """The tasks of the active stack: its health checks, and the connection to the store of the rate limits."""
        self._probing = asyncio.Lock()
        self._probed = (StoreSpec(), 0.0, "")
        """The store that was asked last, the time until which the result is shown, and the result of ``probe``."""

    def open(self, snapshot: Snapshot, rates: RateStore | None = None) -> None:
        """Build the first stack. Blocks the thread. Raises an error if the stack cannot be built.

        ``rates``: the store with the rates of all workers; None if the process serves alone.
        """
        self.resources = open_shared_resources(self.metrics, rates)
        stack = assemble(snapshot, self.resources)
        stack.limiter.activate()
        self.state = GatewayState(
            stack=stack,
            metrics=self.metrics,
            exposition=self.exposition,
            status=self.status,
            started_at=self.started_at,
            viewer_secret=self.viewer_secret,
        )
        self.serves_first(snapshot)
        self._prepared: Stack | None = None
        self._prepared_tls: LoadedCertificate | None = None
        if snapshot.server.tls.certificate is not None:
            from gateway.server.tls import ServerCertificate

            self.certificate = ServerCertificate(snapshot.server)
            self.metrics.set("gateway_certificate_expires_seconds", to=self.certificate.current.expires)
        self.metrics.built(VERSION, snapshot.revision, key_labels=snapshot.key_labels)

    def open_pages(self, *, admin: bool = False) -> Pages:
        """Import and return the pages of a listener, before it accepts connections. ``admin``: the second listener."""
        pages: Pages = resolve_name(VIEWER)(self.state, admin=admin)
        self.pages.append(pages)
        return pages

    async def start(self, snapshot: Snapshot) -> None:
        """Build the first stack and watch the files. Raises an error if the stack cannot be built."""
        await asyncio.to_thread(self.open, snapshot)
        self.metrics.set("gateway_workers", to=1)
        self.watch()

    def watch(self) -> None:
        """Start to reload whenever a file changes (``ConfigReloader.watch``), and start the background tasks."""
        super().watch()
        self.begin_tasks()

    async def stop(self) -> None:
        """Stop all background tasks, and close connections and engines. Called after all calls have ended."""
        await super().stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for store in self.resources.stores.values():
            await store.aclose()
        await self.resources.client.aclose()
        for cache in self.resources.caches.values():
            await cache.aclose()
        for pages in self.pages:
            pages.close()
        for recorder in self.resources.recorders.values():
            await asyncio.to_thread(recorder.close)

    async def prepare(self, snapshot: Snapshot) -> None:
        """Build the stack of a snapshot, and load its pages and its certificate. Raises an error if this fails."""
        self._prepared = await asyncio.to_thread(assemble, snapshot, self.resources)
        for pages in self.pages:
            await asyncio.to_thread(pages.load, snapshot)
        if self.certificate is not None and snapshot.server.tls.certificate is not None:
            from gateway.server.tls import load

            self._prepared_tls = load(snapshot.server)

    async def activate(self, snapshot: Snapshot) -> None:
        """Serve the prepared stack. Running calls keep the stack with which they began."""
        assert self._prepared is not None
        self.state.stack, self._prepared = self._prepared, None
        self.state.stack.limiter.activate()
        if (cache := self.resources.caches.get(snapshot.cache.path)) is not None:
            cache.resize(snapshot.cache.max_size)
        if self.certificate is not None and self._prepared_tls is not None:
            self.certificate.current = self._prepared_tls
            self.metrics.set("gateway_certificate_expires_seconds", to=self.certificate.current.expires)
            self._prepared_tls = None
        self.begin_tasks()
        self.metrics.built(VERSION, snapshot.revision, key_labels=snapshot.key_labels)

    def begin_tasks(self) -> None:
        """Stop the background tasks of the previous stack, and start those of the active stack."""
        for task in self._tasks:
            task.cancel()
        stack = self.state.stack
        runs = [check.run() for check in stack.health_checks]
        self._tasks = [asyncio.create_task(run) for run in [*runs, stack.limiter.store.keep_open()]]

    async def exposition(self) -> bytes:
        return self.metrics.exposition()

    async def status(self) -> dict[str, Any]:
        """Return the body of ``/status``."""
        shared, store = await self.shared_status(), self.state.stack.snapshot.store
        problem = await self._store_problem(store) if store.url else ""
        return {
            "state": "draining" if self.state.ending else "serving",
            **shared,
            "store": {"answers": not problem, "problem": problem or None} if store.url else None,
        }

    async def _store_problem(self, store: StoreSpec) -> str:
        """Return the result of ``probe``, which asks the store at most once in ``PROBE_AGE`` seconds."""
        from gateway.storage.redis_server import probe

        async with self._probing:
            probed, until, problem = self._probed
            if probed != store or time.monotonic() >= until:
                problem = await probe(store, PROBE_SECONDS)
                self._probed = (store, time.monotonic() + PROBE_AGE, problem)
        return problem
