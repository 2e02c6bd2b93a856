"""The objects that serve one configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.config.snapshot import Snapshot

if TYPE_CHECKING:
    from gateway.policy.access.api_keys import Keyring
    from gateway.policy.access.limits import Limiter
    from gateway.policy.deliver.targets.health_check import HealthCheck
    from gateway.storage.recorder import Recorder
    from gateway.wire.redaction import Redactor


@dataclass(frozen=True, slots=True)
class Stack:
    """The objects that serve one configuration. A call uses the same stack until it ends, even after a reload."""

    snapshot: Snapshot
    routes: Mapping[str, Route]
    keyring: Keyring
    limiter: Limiter
    recorder: Recorder | None = None
    """Writes the recordings. None if the configuration names no file for recordings."""
    redactor: Redactor | None = None
    """For the recordings of this configuration. None if the configuration has no patterns."""
    health_checks: tuple[HealthCheck, ...] = ()
    """The health checks of the targets. Each health check runs in its own task while this stack is in use."""
    timeline: Callable[..., CallTimeline] = CallTimeline
    """Makes the record of a call. For the parameters see ``CallTimeline``, or ``Tracing.timeline``."""
