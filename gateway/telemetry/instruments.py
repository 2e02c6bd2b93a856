"""How is something counted in a tenth of a microsecond? In plain floats, by the one thread that serves.

prometheus-client locks and looks labels up at every step; a call moves a dozen series, a stream one for each token.
So the numbers live here, and the library's own families carry them out when ``/metrics`` is asked.
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

    __slots__ = ("_row", "values")

    def __init__(self, row: Metric) -> None:
        self._row = row
        self.values: dict[Labels, float] = {}

    def add(self, labels: Labels, by: float = 1.0) -> None:
        """Move a series by so much."""
        self.values[labels] = self.values.get(labels, 0.0) + by

    def family(self) -> Family:
        """All series, for the exposition."""
        kind = CounterMetricFamily if self._row.kind == "counter" else GaugeMetricFamily
        family = kind(self._row.name, self._row.help, labels=self._row.labels)
        for labels, value in tuple(self.values.items()):
            family.add_metric(labels, value)
        return family


class Histogram:
    """For each set of labels a count per bucket, and the sum."""

    __slots__ = ("_bounds", "_row", "_series")

    def __init__(self, row: Metric) -> None:
        self._row = row
        self._bounds = row.buckets
        self._series: dict[Labels, list[float]] = {}
        """One count for each bucket and one beyond the last, then the sum."""

    def observe(self, labels: Labels, value: float) -> None:
        """One more observation."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = [0.0] * (len(self._bounds) + 2)
        series[bisect_left(self._bounds, value)] += 1.0
        series[-1] += value

    def family(self) -> Family:
        """All series, with the cumulative buckets Prometheus wants."""
        family = HistogramMetricFamily(self._row.name, self._row.help, labels=self._row.labels)
        for labels, series in tuple(self._series.items()):
            family.add_metric(labels, list(self._cumulative(series)), series[-1])
        return family

    def _cumulative(self, series: list[float]) -> Iterator[tuple[str, float]]:
        total = 0.0
        for bound, number in zip((*self._bounds, float("inf")), series, strict=False):
            total += number
            yield "+Inf" if bound == float("inf") else str(bound), total
