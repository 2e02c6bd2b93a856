"""The metrics of several processes as one exposition: each series once.

A process sends a snapshot of its plain numbers: families of samples would cost a worker with twenty models 20 ms each
time, plain numbers cost 0.2 ms. Counters and histograms are added, gauges too unless ``COMBINE`` lists them. What an
ended process had counted stays in the sum (``without_gauges``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gateway.telemetry.instruments import Histogram, Labels, Number
from gateway.telemetry.metric_definitions import METRICS
from gateway.telemetry.metrics import Metrics

Key = TypeVar("Key")
Value = TypeVar("Value")

COMBINE: dict[str, Callable[[float, float], float]] = {
    # All others are added: calls under way, CPU seconds and memory are those of all processes together.
    "gateway_build_info": max,  # which build serves, not how many processes
    "process_start_time_seconds": min,  # the oldest process
    "process_open_fds": max,  # the limit applies to each process, so alerts compare the fullest one
    "process_max_fds": min,  # with the tightest limit
}

GAUGES = frozenset(row.name for row in METRICS if row.kind == "gauge")


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The metrics of one process, or of several together; all values can be pickled."""

    numbers: dict[str, dict[Labels, float]] = field(default_factory=dict)
    histograms: dict[str, dict[Labels, list[float]]] = field(default_factory=dict)
    """In the form of ``Histogram.snapshot``."""
    process: list[Family] = field(default_factory=list)
    """The metrics of the operating system about the process."""


def take_snapshot(metrics: Metrics) -> MetricsSnapshot:
    """The present metrics of this process."""
    numbers, histograms = metrics.snapshot()
    return MetricsSnapshot(numbers=numbers, histograms=histograms, process=list(metrics.process.collect()))


def without_gauges(snapshot: MetricsSnapshot) -> MetricsSnapshot:
    """What an ended process adds to the sum for ever: its counters and histograms."""
    return MetricsSnapshot(
        numbers={name: values for name, values in snapshot.numbers.items() if name not in GAUGES},
        histograms=snapshot.histograms,
        process=[family for family in snapshot.process if family.type == "counter"],
    )


def merge(snapshots: Sequence[MetricsSnapshot]) -> MetricsSnapshot:
    """All snapshots as one; series stand in the order of their first appearance."""
    numbers: dict[str, dict[Labels, float]] = {}
    histograms: dict[str, dict[Labels, list[float]]] = {}
    for snapshot in snapshots:
        for name, values in snapshot.numbers.items():
            _combine(numbers.setdefault(name, {}), values, COMBINE.get(name, _add))
        for name, series in snapshot.histograms.items():
            _combine(histograms.setdefault(name, {}), series, _add_each)
    process = _merge_process([family for snapshot in snapshots for family in snapshot.process])
    return MetricsSnapshot(numbers=numbers, histograms=histograms, process=process)


def exposition(snapshot: MetricsSnapshot) -> bytes:
    """The body of ``/metrics``."""
    registry = CollectorRegistry()
    registry.register(_SnapshotCollector(snapshot))
    return generate_latest(registry)


def _add(one: float, other: float) -> float:
    return one + other


def _add_each(one: list[float], other: list[float]) -> list[float]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _combine(into: dict[Key, Value], values: dict[Key, Value], combine: Callable[[Value, Value], Value]) -> None:
    for key, value in values.items():
        into[key] = combine(into[key], value) if key in into else value


def _merge_process(families: Sequence[Family]) -> list[Family]:
    """Families of one sample each, each family once."""
    first: dict[str, Family] = {}
    values: dict[str, float] = {}
    for family in families:
        first.setdefault(family.name, family)
        for sample in family.samples:
            _combine(values, {sample.name: sample.value}, COMBINE.get(sample.name, _add))
    return [_with_values(family, values) for family in first.values()]


def _with_values(family: Family, values: dict[str, float]) -> Family:
    copy = Family(family.name, family.documentation, family.type, family.unit)
    copy.samples = [Sample(sample.name, {}, values[sample.name]) for sample in family.samples]
    return copy


class _SnapshotCollector(Collector):
    """prometheus-client: a snapshot as families, in the order of a lone process."""

    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        """The families."""
        yield from self._snapshot.process
        for row in METRICS:
            if row.kind == "histogram":
                histogram = Histogram(row)
                histogram.restore(self._snapshot.histograms.get(row.name, {}))
                yield histogram.family()
            else:
                number = Number(row)
                number.restore(self._snapshot.numbers.get(row.name, {}))
                yield number.family()
