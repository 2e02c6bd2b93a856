"""The metrics of a process as plain numbers, and those of several processes as one: each series once.

A process sends a snapshot: families of samples would cost a worker with twenty models 20 ms each time, plain numbers
cost 0.2 ms. Counters and histograms are added, gauges too unless ``COMBINE`` lists them. What an ended process had
counted stays in the sum (``without_gauges``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from gateway.telemetry.metric_definitions import METRICS, Labels, Metric

Values = dict[Labels, list[float]]
"""The series of one metric: the value of a number, or the counts of a histogram's buckets and then its sum."""

COMBINE: dict[str, Callable[[float, float], float]] = {
    # All others are added: calls under way, CPU seconds and memory are those of all processes together.
    "gateway_build_info": max,  # which build serves, not how many processes
    "process_start_time_seconds": min,  # the oldest process
    "process_open_fds": max,  # the limit applies to each process, so alerts compare the fullest one
    "process_max_fds": min,  # with the tightest limit
}

GAUGES = frozenset(row.name for row in METRICS if row.kind == "gauge")


@dataclass(frozen=True, slots=True, eq=False)
class MetricsSnapshot(Collector):
    """The metrics of one process, or of several together; all values can be pickled."""

    series: dict[str, Values] = field(default_factory=dict)
    """By metric."""
    process: list[Family] = field(default_factory=list)
    """The metrics of the operating system about the process."""

    def collect(self) -> Iterator[Family]:
        """prometheus-client: every family, ours in the order of the rows."""
        yield from self.process
        for row in METRICS:
            yield _family(row, self.series.get(row.name, {}))

    def exposition(self) -> bytes:
        """The body of ``/metrics``."""
        return generate_latest(self)


def without_gauges(snapshot: MetricsSnapshot) -> MetricsSnapshot:
    """What an ended process adds to the sum for ever: its counters and histograms."""
    return MetricsSnapshot(
        series={name: values for name, values in snapshot.series.items() if name not in GAUGES},
        process=[family for family in snapshot.process if family.type == "counter"],
    )


def merge(snapshots: Sequence[MetricsSnapshot]) -> MetricsSnapshot:
    """All snapshots as one; series stand in the order of their first appearance."""
    series: dict[str, Values] = {}
    families: dict[str, Family] = {}
    samples: Values = {}
    for snapshot in snapshots:
        for name, values in snapshot.series.items():
            _combine(series.setdefault(name, {}), values, COMBINE.get(name, add))
        for family in snapshot.process:  # of at most one sample each, without labels
            families.setdefault(family.name, family)
            for sample in family.samples:
                _combine(samples, {(sample.name,): [sample.value]}, COMBINE.get(sample.name, add))
    process = []
    for family in families.values():
        process.append(Family(family.name, family.documentation, family.type, family.unit))
        process[-1].samples = [sample._replace(value=samples[sample.name,][0]) for sample in family.samples]
    return MetricsSnapshot(series=series, process=process)


def _combine(into: Values, values: Values, combine: Callable[[float, float], float]) -> None:
    for labels, numbers in values.items():
        into[labels] = list(map(combine, into[labels], numbers)) if labels in into else numbers


def _family(row: Metric, values: Values) -> Family:
    if row.kind == "histogram":
        histogram = HistogramMetricFamily(row.name, row.help, labels=row.labels)
        edges = [*map(str, row.buckets), "+Inf"]
        for labels, (*counts, total) in values.items():
            histogram.add_metric(labels, list(zip(edges, accumulate(counts), strict=True)), total)
        return histogram
    family = (CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily)(
        row.name, row.help, labels=row.labels
    )
    for labels, (value,) in values.items():
        family.add_metric(labels, value)
    return family
