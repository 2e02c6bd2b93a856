"""Counters, gauges and histograms in plain floats, moved by one thread.

prometheus-client takes a lock at every step, and a call moves a dozen series, a stream one for each token. So the
values are kept here, and become the library's families when ``/metrics`` is requested.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family

from gateway.telemetry.names import Metric

Labels = tuple[str, ...]


class Number:
    """A counter or a gauge: one float for each set of labels."""

    __slots__ = ("_row", "series")

    def __init__(self, row: Metric, series: dict[Labels, float] | None = None) -> None:
        self._row = row
        self.series = series or {}

    def add(self, labels: Labels, value: float) -> None:
        """Add to one series."""
        self.series[labels] = self.series.get(labels, 0.0) + value

    def family(self) -> Family:
        """All series, for the exposition."""
        kind = CounterMetricFamily if self._row.kind == "counter" else GaugeMetricFamily
        family = kind(self._row.name, self._row.help, labels=self._row.labels)
        for labels, value in tuple(self.series.items()):
            family.add_metric(labels, value)
        return family


class Histogram:
    """For each set of labels one count for each bucket, one beyond the last, then the sum."""

    __slots__ = ("_row", "series")

    def __init__(self, row: Metric, series: dict[Labels, list[float]] | None = None) -> None:
        self._row = row
        self.series = series or {}

    def observe(self, labels: Labels, value: float) -> None:
        """Add an observation to one series."""
        bounds, series = self._row.buckets, self.series.get(labels)
        if series is None:
            series = self.series[labels] = [0.0] * (len(bounds) + 2)
        series[bisect_left(bounds, value)] += 1
        series[-1] += value

    def family(self) -> Family:
        """All series, with cumulative buckets."""
        family = HistogramMetricFamily(self._row.name, self._row.help, labels=self._row.labels)
        for labels, series in tuple(self.series.items()):
            family.add_metric(labels, list(self._cumulative(series)), series[-1])
        return family

    def _cumulative(self, series: list[float]) -> Iterator[tuple[str, float]]:
        total = 0.0
        for bound, number in zip((*map(str, self._row.buckets), "+Inf"), series, strict=False):
            total += number
            yield bound, total
