"""Results of one run: the metrics of every round, kept in a JSON file, and statistics over the rounds."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.load.load_generator import load_generator_name
from bench.processes import CORES, LOAD_CORE, SYSTEM_CORE
from bench.report.stats import Stats, summarize

REFERENCE = "gateway"
RATIO_METRICS = ("requests_per_second", "cpu_us", "p99_ms", "delay_p99_ms", "kb_per_stream", "ready_seconds", "rss_mb")
"""Metrics that are compared with the reference, where they were measured."""


@dataclass(slots=True)
class Results:
    """One run of the suite."""

    machine: dict[str, object] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)
    rounds: dict[str, dict[str, list[dict[str, float] | None]]] = field(default_factory=dict)
    """scenario → system → metrics of each round; None for a round in which the measurement failed."""
    failures: dict[str, dict[str, str]] = field(default_factory=dict)
    """scenario → system → why it could not be measured."""
    python_builds: dict[str, str] = field(default_factory=dict)
    """system → the Python build that renders for it, where several renderers were compared."""

    def add(self, scenario: str, system: str, metrics: dict[str, float] | None) -> None:
        """Append one round of one system."""
        rounds = self.rounds.setdefault(scenario, {}).setdefault(system, [])
        direct = self.rounds[scenario].get("direct")
        rounds.append(None if metrics is None else with_added_latency(metrics, direct[-1] if direct else None))

    def stats(self, scenario: str, system: str) -> dict[str, Stats]:
        """Statistics of each metric over the rounds."""
        rounds = [metrics for metrics in self.rounds[scenario].get(system, []) if metrics is not None]
        names = dict.fromkeys(name for metrics in rounds for name in metrics)
        return {name: summarize([metrics[name] for metrics in rounds if name in metrics]) for name in names}

    def ratios(self, scenario: str, system: str) -> Iterator[tuple[str, Stats]]:
        """Metric of the reference divided by this system's, round by round; without it, of the first system."""
        systems = self.rounds[scenario]
        reference, compared = systems.get(REFERENCE) or next(iter(systems.values())), systems[system]
        for name in RATIO_METRICS:
            ratios = [
                one[name] / other[name]
                for one, other in zip(reference, compared, strict=False)
                if one and other and one.get(name) is not None and other.get(name)
            ]
            if ratios:
                yield name, summarize(ratios)

    def save(self, path: Path) -> None:
        """Write the JSON file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Results:
    """Read a file that ``save`` wrote."""
    return Results(**json.loads(path.read_text(encoding="utf-8")))


def with_added_latency(metrics: dict[str, float], direct: dict[str, float] | None) -> dict[str, float]:
    """Add the difference to ``direct`` (no proxy) in the same round: first token p50 and event delay p99."""
    if direct is None or "first_p50_ms" not in metrics:
        return metrics
    return metrics | {
        "added_first_p50_ms": metrics["first_p50_ms"] - direct["first_p50_ms"],
        "added_delay_p99_ms": metrics["delay_p99_ms"] - direct["delay_p99_ms"],
    }


def machine() -> dict[str, object]:
    """The machine and its load, without names of host or user."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": cpu,
        "cores": len(CORES),
        "system_core": SYSTEM_CORE,
        "load_core": LOAD_CORE,
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "load_generator": load_generator_name(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
