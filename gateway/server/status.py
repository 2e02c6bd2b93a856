"""The part of ``/status`` about the active configuration."""

from __future__ import annotations

from typing import Any

from gateway.config.snapshot import Snapshot
from gateway.telemetry.merge import MetricsSnapshot, Values
from gateway.version import VERSION


def serving_status(snapshot: Snapshot, metrics: MetricsSnapshot) -> dict[str, Any]:
    """Return what is served, and the targets that calls avoid. Addresses and keys are left out.

    ``metrics``: those of all processes. A target is avoided if any process avoids it.
    """
    avoided = {labels for labels, (processes,) in metrics.series["gateway_circuit_open"].items() if processes}
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
                "targets": [
                    {"name": target.label, "avoided": (model.name, target.label) in avoided} for target in model.targets
                ],
            }
            for model in snapshot.models.values()
        ],
    }


def _total(gauge: Values) -> int:
    return int(sum(value for (value,) in gauge.values()))
