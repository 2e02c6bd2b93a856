"""What do several processes tell together? One exposition: each series once, its values combined by their meaning.

A process tells a *tally*: its numbers at one moment, as plain as they are kept. Families of samples would cost a
worker with twenty models 20 ms each time, plain numbers cost it 0.2 ms. Counters and histograms are added, gauges too
unless ``COMBINE`` says otherwise. What a dead process had counted stays in the sum as its *remains*.
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
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import METRICS

Key = TypeVar("Key")
Value = TypeVar("Value")

COMBINE: dict[str, Callable[[float, float], float]] = {
    # The rest is added: calls under way, CPU seconds and memory are those of all processes together.
    "gateway_build_info": max,  # which build serves, not how many of it
    "process_start_time_seconds": min,  # the gateway is as old as its oldest process
    "process_open_fds": max,  # the limit is one for each process, so the fullest of them
    "process_max_fds": min,  # and the tightest limit are what an alert compares
}

GAUGES = frozenset(row.name for row in METRICS if row.kind == "gauge")


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """What one process tells, or several together; only such values as ``pickle`` takes."""

    numbers: dict[str, dict[Labels, float]] = field(default_factory=dict)
    histograms: dict[str, dict[Labels, list[float]]] = field(default_factory=dict)
    """As ``Histogram.snapshot`` gives them."""
    process: list[Family] = field(default_factory=list)
    """What the operating system tells of the process."""


def tally(metrics: Metrics) -> MetricsSnapshot:
    """What this process tells now."""
    return MetricsSnapshot(*metrics.snapshot(), list(metrics.process.collect()))


def remains(told: MetricsSnapshot) -> MetricsSnapshot:
    """What stays of a process that is gone: what it counted, not what it was doing."""
    return MetricsSnapshot(
        {name: values for name, values in told.numbers.items() if name not in GAUGES},
        told.histograms,
        [family for family in told.process if family.type == "counter"],
    )


def merge(tallies: Sequence[MetricsSnapshot]) -> MetricsSnapshot:
    """All tallies as one; series stand in the order in which they are first told."""
    numbers: dict[str, dict[Labels, float]] = {}
    histograms: dict[str, dict[Labels, list[float]]] = {}
    for told in tallies:
        for name, values in told.numbers.items():
            _combine(numbers.setdefault(name, {}), values, COMBINE.get(name, _add))
        for name, series in told.histograms.items():
            _combine(histograms.setdefault(name, {}), series, _add_each)
    return MetricsSnapshot(numbers, histograms, _processes([told.process for told in tallies]))


def exposition(told: MetricsSnapshot) -> bytes:
    """The body of ``/metrics``."""
    registry = CollectorRegistry()
    registry.register(_Told(told))
    return generate_latest(registry)


def _add(one: float, other: float) -> float:
    return one + other


def _add_each(one: list[float], other: list[float]) -> list[float]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _combine(into: dict[Key, Value], values: dict[Key, Value], how: Callable[[Value, Value], Value]) -> None:
    for key, value in values.items():
        into[key] = how(into[key], value) if key in into else value


def _processes(told: Sequence[list[Family]]) -> list[Family]:
    """Families of one sample each."""
    like: dict[str, Family] = {}
    values: dict[str, float] = {}
    for family in (family for families in told for family in families):
        like.setdefault(family.name, family)
        for sample in family.samples:
            _combine(values, {sample.name: sample.value}, COMBINE.get(sample.name, _add))
    return [_like(family, values) for family in like.values()]


def _like(family: Family, values: dict[str, float]) -> Family:
    made = Family(family.name, family.documentation, family.type, family.unit)
    made.samples = [Sample(sample.name, {}, values[sample.name]) for sample in family.samples]
    return made


class _Told(Collector):
    """prometheus-client: a tally as families, in the order in which a lone process tells them."""

    def __init__(self, told: MetricsSnapshot) -> None:
        self._told = told

    def collect(self) -> Iterator[Family]:
        """The families."""
        yield from self._told.process
        for row in METRICS:
            if row.kind == "histogram":
                histogram = Histogram(row)
                histogram.restore(self._told.histograms.get(row.name, {}))
                yield histogram.family()
            else:
                number = Number(row)
                number.restore(self._told.numbers.get(row.name, {}))
                yield number.family()
