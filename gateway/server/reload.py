"""Reads the configuration files, and reloads them when they change.

A reload reads every file and builds the new configuration while the old configuration serves. If anything fails, the
old configuration keeps serving.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from gateway.config.files.watcher import FileWatcher, file_state
from gateway.config.load import read_configuration
from gateway.config.sections.server import is_loopback
from gateway.config.snapshot import ServerSpec, Snapshot
from gateway.core.errors import ConfigError, GatewayError, Problem
from gateway.telemetry.merge import MetricsSnapshot, Values
from gateway.telemetry.metrics import Metrics
from metatemplate.values.words import utc
from metatemplate.version import VERSION

LOG = logging.getLogger("gateway.runtime")

INTERNAL_ERROR = "internal error; the gateway's log has the details"
"""The reason of a failed reload if the error is a bug, whose message may contain anything."""
POLL_SECONDS = 1.0
"""Seconds between two checks of the files."""

RELOADABLE = frozenset(
    {
        "cors",
        "insecure_no_keys",
        "max_body",
        "max_connections",
        "max_connections_per_client",
        "max_in_flight",
        "tls",
        "viewer",
        "viewer_secret",
    }
)
"""Settings under ``server`` that a reload applies. A change of any other setting under ``server`` needs a restart."""


class ConfigLoader:
    """Reads the configuration files, and detects changes to them."""

    def __init__(self, path: Path, env: Mapping[str, str] | None = None) -> None:
        """``path``: the file ``gateway.yaml``. ``env``: environment variables, by default those of the process."""
        self.path = path
        self._env = os.environ if env is None else env
        self.watcher = FileWatcher([path])

    def load(self) -> Snapshot:
        """Read the files and return the configuration. Blocks the thread. Raises ``ConfigError`` with every problem."""
        outcome = read_configuration(self.path, self._env)
        # Files are watched even if refused, because the file to correct may be new in this configuration.
        self.watcher.follow((*outcome.files, *outcome.looked_at))
        if outcome.snapshot is None:
            raise ConfigError(outcome.problems)
        return outcome.snapshot


class ConfigReloader(ABC):
    """Watches and reloads the configuration of a process. Subclasses build and serve the configuration."""

    _active: Snapshot
    """The active configuration. Set by ``serves_first``."""
    bound: ServerSpec
    """The ``server`` settings of the first configuration. The listeners use them until the process ends."""

    def __init__(self, loader: ConfigLoader) -> None:
        self.loader = loader
        self._watcher: asyncio.Task[None] | None = None
        self._reloading = asyncio.Lock()
        self.metrics = Metrics()
        self._serving = ""
        """The ``fingerprint`` of the active configuration."""
        self._reported = ""
        """The error message of the last reload; empty if the last reload was successful."""
        self._last_reload: dict[str, str | None] = {"at": None, "error": None}
        """The last finished reload, for ``/status``: its time in UTC, and the reason why it was refused."""
        self._expiry_notes: set[str] = set()
        """The notes on expiring client keys that have been logged."""
        self.started_at = int(time.time())
        """The start of the process, as Unix time in seconds."""
        self.viewer_secret = secrets.token_bytes(32)
        """Signs the sessions of the viewer (``GatewayState.viewer_secret``)."""

    # ------------------------------------------------ for the subclass

    @abstractmethod
    async def prepare(self, snapshot: Snapshot) -> None:
        """Build the stack of the new configuration, while the old stack serves. Raises an error if this fails."""

    @abstractmethod
    async def activate(self, snapshot: Snapshot) -> None:
        """Serve the stack that ``prepare`` has built."""

    @abstractmethod
    async def exposition(self) -> bytes:
        """Return the body of ``/metrics``."""

    def known_metrics(self) -> MetricsSnapshot:
        """Return the metrics of all processes, without asking another process for its metrics."""
        return self.metrics.snapshot()

    async def shared_status(self) -> dict[str, Any]:
        """Return the part of ``/status`` that all workers share."""
        return {
            **_serving_status(self._active, self.known_metrics()),
            "started_at": utc(self.started_at),
            "last_reload": self._last_reload,
        }

    # ------------------------------------------------ reloading

    def serves_first(self, snapshot: Snapshot) -> None:
        """Record the configuration with which the process starts."""
        self.bound = snapshot.server
        self._active = snapshot
        self._serving = fingerprint(snapshot)

    async def reload(self, *, watched: bool = False) -> bool:
        """Read the files and serve the new configuration. If this fails, change nothing and return False.

        ``watched``: whether the file watcher calls this method. The watcher may report an edit that SIGHUP has already
        loaded. So a watched reload does not log an unchanged configuration, and does not log the same error again.
        """
        async with self._reloading:
            try:
                snapshot = await asyncio.to_thread(self.loader.load)
                identity = await asyncio.to_thread(fingerprint, snapshot)
                self._require_keys(snapshot)
                if identity == self._serving:
                    if self._reported or not watched:
                        LOG.info("the files contain configuration %s, which is already in use", snapshot.revision)
                    self._reported, self._last_reload = "", {"at": utc(time.time()), "error": None}
                    return True
                await self.prepare(snapshot)
            except Exception as error:  # including bugs and broken model files: the watcher must continue
                before, self._reported = self._reported, str(error)
                reason = str(error) if isinstance(error, GatewayError) else INTERNAL_ERROR
                self._last_reload = {"at": utc(time.time()), "error": reason}
                if watched and before == self._reported:
                    return False
                self.metrics.count("gateway_reloads_total", "error")
                if isinstance(error, GatewayError):
                    LOG.error("reload refused, the old configuration keeps serving:\n%s", error)
                else:
                    LOG.exception("reload failed, the old configuration keeps serving")
                return False
            changed = [
                f"server.{field.name}"
                for field in fields(ServerSpec)
                if field.name not in RELOADABLE
                and getattr(snapshot.server, field.name) != getattr(self.bound, field.name)
            ]
            if snapshot.server.tls.admin != self.bound.tls.admin:
                changed.append("server.tls.admin")
            if snapshot.server.scheme != self.bound.scheme:
                changed.append("server.tls")
            if changed:
                LOG.warning("restart the gateway to apply the change of %s", ", ".join(changed))
            await self.activate(snapshot)
            self._active, self._serving, self._reported = snapshot, identity, ""
            self._last_reload = {"at": utc(time.time()), "error": None}
            self.metrics.count("gateway_reloads_total", "ok")
            LOG.info(
                "configuration %s is in use now: it has the models %s", snapshot.revision, ", ".join(snapshot.models)
            )
            return True

    def _require_keys(self, snapshot: Snapshot) -> None:
        """Refuse a configuration without client keys if the listener is bound to another address than loopback.

        The address in the new configuration is ignored, because a new address needs a restart.
        """
        if snapshot.keys or snapshot.server.insecure_no_keys or is_loopback(self.bound.host):
            return
        where = f"the gateway listens on {self.bound.host} until a restart, and other machines can connect to it"
        message = f"{where}; keep the client keys until the restart"
        raise ConfigError((Problem(self.loader.path.name, 0, "keys", message),))

    # ------------------------------------------------ watching

    def watch(self) -> None:
        """Start a task that reloads the configuration whenever a file changes, until ``stop`` is called."""
        self._watcher = asyncio.create_task(self._watch(), name="config-watch")

    async def stop(self) -> None:
        """Stop watching the files."""
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher

    async def _watch(self) -> None:
        failing = False
        while True:
            self._log_expiring_keys()
            await asyncio.sleep(POLL_SECONDS)
            try:
                changed = await asyncio.to_thread(self.loader.watcher.changed)
            except OSError as error:  # too many open files, or an unmounted file system: it may recover
                if not failing:
                    LOG.error("the configuration's files cannot be checked for changes: %s", error)
                failing = True
                continue
            if failing:
                LOG.info("the configuration's files can be checked for changes again")
            failing = False
            if changed:
                await self.reload(watched=True)

    def _log_expiring_keys(self) -> None:
        """Log once that a client key expires soon, and once that it has expired."""
        if not self._active.keys:
            return
        from gateway.config.sections.keys import expiry_notes

        notes = dict.fromkeys(expiry_notes(self._active.keys, time.time()))
        for note in notes:
            if note not in self._expiry_notes:
                LOG.warning("%s", note)
        self._expiry_notes = set(notes)


def fingerprint(snapshot: Snapshot) -> str:
    """Return the revision of a configuration, and the state of the tokenizer and model files that it names."""
    found = [snapshot.revision]
    for model in snapshot.models.values():
        for path in (model.tokenizer, *(target.local_path for target in model.targets)):
            files = () if path is None else (path, *path.glob("*")) if path.is_dir() else (path,)
            found += [f"{file} {file_state(file)}" for file in sorted(files)]
    return "\n".join(found)


def _serving_status(snapshot: Snapshot, metrics: MetricsSnapshot) -> dict[str, Any]:
    """Return what is served, and the state of each target. Addresses and keys are left out.

    ``metrics``: those of all processes.
    """
    return {
        "version": VERSION,
        "revision": snapshot.revision,
        "workers": _total(metrics.series["gateway_workers"]),
        "running_calls": _total(metrics.series["gateway_in_flight"]),
        "models": [
            {
                "name": model.name,
                "template": model.template.name,
                "policy": model.policy.name,
                "targets": [_target_status(metrics, model.name, target.label) for target in model.targets],
            }
            for model in snapshot.models.values()
        ],
    }


def _target_status(metrics: MetricsSnapshot, *labels: str) -> dict[str, Any]:
    """Return the state of a target, also in words. It is avoided if any process avoids it."""
    is_avoided = metrics.value("gateway_circuit_open", *labels) > 0
    last = {one: int(metrics.value("gateway_last_attempts", *labels, one)) for one in ("ok", "refused", "failed")}
    total = sum(last.values())
    state = "avoided" if is_avoided else "in use" if total else "not used yet"
    of_last = "the last attempt" if total == 1 else "{} of the last {}"
    problems = [f"{of_last.format(last[one], total)} {one}" for one in ("failed", "refused") if last[one]]
    return {"name": labels[1], "avoided": is_avoided, "state": ", ".join([state, *problems]), "last_attempts": last}


def _total(gauge: Values) -> int:
    return int(sum(value for (value,) in gauge.values()))
