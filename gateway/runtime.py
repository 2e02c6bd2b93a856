"""Which configuration serves now? The runtime owns the current stack, and swaps it whole.

A reload reads every file, builds the whole new world, runs each template's examples, and only
then takes its place; a bad edit leaves the old one serving (``docs/operations.md``, Reload).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from gateway import __version__
from gateway.assembly import SharedResources, Stack, assemble, open_shared_resources
from gateway.config.files.watcher import FileWatcher
from gateway.config.load import read_configuration
from gateway.config.sections.server import is_loopback
from gateway.config.snapshot import ServerSpec, Snapshot
from gateway.core.errors import ConfigError, GatewayError, Problem
from gateway.telemetry.metrics import Metrics

LOG = logging.getLogger("gateway.runtime")

POLL = 1.0
"""Seconds between two looks at the files."""

AT_ONCE = frozenset({"max_body", "max_in_flight", "insecure_no_keys"})
"""Settings under ``server`` that a reload applies; the others belong to listeners and clients that stay open."""


class Runtime:
    """The serving world: made once per process, entered by the server's lifespan."""

    def __init__(self, config: Path, env: Mapping[str, str] | None = None) -> None:
        self._config = config
        self._env = os.environ if env is None else env
        self._watch = FileWatcher([config])
        self._watcher: asyncio.Task[None] | None = None
        self._reloading = asyncio.Lock()
        self.metrics = Metrics()
        self.doors: SharedResources | None = None
        self.stack: Stack | None = None
        self.bound: ServerSpec | None = None
        """How this process listens until it ends: the first configuration's ``server``."""
        self.born = int(time.time())
        """Seconds since the epoch; all workers tell the same."""
        self.draining = False
        self.leave = asyncio.Event()
        """Set when the process shall drain and end."""
        self.cut = asyncio.Event()
        """Set when it shall not wait for the calls under way."""
        self._next: Stack | None = None
        """Prepared by a reload, not serving yet."""

    def load(self) -> Snapshot:
        """Read the files as they are now; raises ``ConfigError`` with every problem. Blocks."""
        outcome = read_configuration(self._config, self._env)
        # Followed even if refused: the file that mends a problem may be one that was only now named.
        self._watch.follow((*outcome.files, *outcome.looked_at))
        if outcome.snapshot is None:
            raise ConfigError(outcome.problems)
        return outcome.snapshot

    async def start(self, snapshot: Snapshot) -> None:
        """Build the first stack, and look after it; raises if it cannot be built."""
        await self.open(snapshot)
        self.metrics.workers(1)
        self.watch()

    async def open(self, snapshot: Snapshot) -> None:
        """Build the first stack; raises if it cannot be built."""
        self.bound = snapshot.server
        self.doors = open_shared_resources(self.metrics)
        await self.prepare(snapshot)
        await self.take(snapshot)

    def watch(self) -> None:
        """Look at the files from now on."""
        self._watcher = asyncio.create_task(self._look(), name="config-watch")

    def signalled(self) -> None:
        """Told to end by a signal: the first drains, a second one cuts."""
        if self.leave.is_set():
            self.cut.set()
        self.drain()

    def drain(self) -> None:
        """Take no more calls; end when those under way have ended."""
        self.draining = True
        self.leave.set()

    async def stop(self) -> None:
        """Close connections and engines; running calls are over by then."""
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher
        if self.doors is not None:
            await self.doors.client.aclose()

    async def reload(self) -> bool:
        """Take the files as they are now; False, and the old stack, if they cannot be used."""
        async with self._reloading:
            try:
                snapshot = await asyncio.to_thread(self.load)
                self._guard(snapshot)
                await self.prepare(snapshot)
            except GatewayError as error:
                self.metrics.count("gateway_reloads_total", "error")
                LOG.error("reload refused, the old configuration keeps serving:\n%s", error)
                return False
            except Exception:  # a mistake of ours, or a broken model file: the watcher must live on
                self.metrics.count("gateway_reloads_total", "error")
                LOG.exception("reload failed, the old configuration keeps serving")
                return False
            if late := self._late(snapshot.server):
                LOG.warning("a change of %s takes effect at the next start", ", ".join(late))
            await self.take(snapshot)
            self.metrics.count("gateway_reloads_total", "ok")
            LOG.info("configuration %s serves now: %s", snapshot.revision, ", ".join(snapshot.models))
            return True

    def _guard(self, snapshot: Snapshot) -> None:
        """Refuse to open a listener that strangers reach: what counts is where it is bound, not what the file says."""
        assert self.bound is not None
        if snapshot.keys or snapshot.server.insecure_no_keys or is_loopback(self.bound.host):
            return
        message = (
            f"the listener is open to others on {self.bound.host} until the next start: "
            "name client keys until then, or restart"
        )
        raise ConfigError((Problem(self._config.name, 0, "keys", message),))

    def _late(self, server: ServerSpec) -> list[str]:
        """The settings that differ from those this process listens with, and that wait for the next start."""
        names = [field.name for field in fields(ServerSpec) if field.name not in AT_ONCE]
        return [f"server.{name}" for name in names if getattr(server, name) != getattr(self.bound, name)]

    async def prepare(self, snapshot: Snapshot) -> None:
        """Build the stack of a snapshot beside the one that serves; raises if it cannot be built."""
        assert self.doors is not None
        self._next = await asyncio.to_thread(assemble, snapshot, self.doors)

    async def take(self, snapshot: Snapshot) -> None:
        """Serve what has been prepared; calls under way end with what they began with."""
        self.stack, self._next = self._next, None
        self.metrics.built(__version__, snapshot.revision)

    async def exposition(self) -> bytes:
        """The body of ``/metrics``."""
        return self.metrics.exposition()

    async def _look(self) -> None:
        blind = False
        while True:
            await asyncio.sleep(POLL)
            try:
                changed = await asyncio.to_thread(self._watch.changed)
            except OSError as error:  # too many open files, a file system that is gone: it may come back
                if not blind:
                    LOG.error("the configuration's files cannot be looked at, changes go unseen: %s", error)
                blind = True
                continue
            if blind:
                LOG.info("the configuration's files can be looked at again")
            blind = False
            if changed:
                await self.reload()
