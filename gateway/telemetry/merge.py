"""The metrics of one process as plain numbers, and the sum of the metrics of several processes.

Each process sends a snapshot of plain numbers. For a worker with twenty models, a snapshot takes 0.2 ms; the sample
families of prometheus-client would take 20 ms. The values of all processes are added, except for the metrics in
``COMBINE``. The counts of an ended process stay in the sum (``without_gauges``).
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
"""The series of one metric. A counter or gauge has one value; a histogram has the bucket counts, then the sum."""

COMBINE: dict[str, Callable[[float, float], float]] = {
    # All other metrics are added: running calls, CPU seconds and memory are totals of all processes.
    "gateway_build_info": max,  # which version serves, not how many processes
    "gateway_certificate_expires_seconds": min,  # the first that expires, if a worker has another certificate
    "process_start_time_seconds": min,  # the oldest process
    "process_open_fds": max,  # each process has a limit, so alerts compare the highest number
    "process_max_fds": min,  # the lowest limit, for the same alerts
}

DIGITS = 6
"""Decimal digits of the values in ``/metrics``.

The last bits of a sum depend on the order of the processes. Without rounding, a counter could become smaller by one bit
when a process ends, and Prometheus would read this as a restart of the counter."""

GAUGES = frozenset(row.name for row in METRICS if row.kind == "gauge")


@dataclass(frozen=True, slots=True, eq=False)
class MetricsSnapshot(Collector):
    """The metrics of one process, or the sum for several processes. All values can be pickled."""

    series: dict[str, Values] = field(default_factory=dict)
    """Name of a metric → the series of this metric."""
    process: list[Family] = field(default_factory=list)
    """The metrics of the operating system about the process."""

    def collect(self) -> Iterator[Family]:
        """Yield all metric families, for prometheus-client. Our own families have the order of ``METRICS``."""
        for family in self.process:
            rounded = Family(family.name, family.documentation, family.type, family.unit)
            rounded.samples = [sample._replace(value=round(sample.value, DIGITS)) for sample in family.samples]
            yield rounded
        for row in METRICS:
            yield _family(row, self.series.get(row.name, {}))

    def value(self, name: str, *labels: str) -> float:
        """Return the value of one series of a counter or a gauge; 0 if there is none yet."""
        return self.series[name].get(labels, [0.0])[0]

    def exposition(self) -> bytes:
        """Return the body of ``/metrics``."""
        return generate_latest(self)


def without_gauges(snapshot: MetricsSnapshot) -> MetricsSnapshot:
    """Return only the counters and histograms of an ended process. These values stay in the sum for ever."""
    return MetricsSnapshot(
        series={name: values for name, values in snapshot.series.items() if name not in GAUGES},
        process=[family for family in snapshot.process if family.type == "counter"],
    )


def merge(snapshots: Sequence[MetricsSnapshot]) -> MetricsSnapshot:
    """Return the sum of all snapshots. The series have the order of their first appearance."""
    series: dict[str, Values] = {}
    families: dict[str, Family] = {}
    samples: Values = {}
    for snapshot in snapshots:
        for name, values in snapshot.series.items():
            _combine(series.setdefault(name, {}), values, COMBINE.get(name, add))
        for family in snapshot.process:  # each family has at most one sample, without labels
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
            histogram.add_metric(labels, list(zip(edges, accumulate(counts), strict=True)), round(total, DIGITS))
        return histogram
    family = (CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily)(
        row.name, row.help, labels=row.labels
    )
    for labels, (value,) in values.items():
        family.add_metric(labels, round(value, DIGITS))
    return family
