"""Counters, gauges and histograms as plain numbers, written by the one thread that serves.

prometheus-client takes a lock and looks up labels at every step; a call moves a dozen series, a stream one for each
token. So the numbers are kept here, and become families of prometheus-client when ``/metrics`` is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import repeat

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family

from gateway.telemetry.metric_definitions import Metric

Labels = tuple[str, ...]


class NumberSeries:
    """One series of a counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0.0) -> None:
        self.value = value


class Number:
    """A counter or a gauge: one series for each set of labels."""

    __slots__ = ("_row", "series")

    def __init__(self, row: Metric) -> None:
        self._row = row
        self.series: dict[Labels, NumberSeries] = {}

    def labels(self, labels: Labels) -> NumberSeries:
        """The series with these labels; callers that move it often keep it."""
        series = self.series.get(labels)
        if series is None:
            series = self.series[labels] = NumberSeries()
        return series

    def snapshot(self) -> dict[Labels, float]:
        """The present values."""
        return {labels: series.value for labels, series in self.series.items()}

    def restore(self, values: dict[Labels, float]) -> None:
        """Replace all series by these values."""
        self.series = {labels: NumberSeries(value) for labels, value in values.items()}

    def family(self) -> Family:
        """All series, for the exposition."""
        kind = CounterMetricFamily if self._row.kind == "counter" else GaugeMetricFamily
        family = kind(self._row.name, self._row.help, labels=self._row.labels)
        for labels, series in tuple(self.series.items()):
            family.add_metric(labels, series.value)
        return family


class HistogramSeries:
    """One series of a histogram: a count per bucket, and the sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """One for each bucket, and one beyond the last; not cumulative."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Add many observations: a stream has hundreds, and a call for each costs more than counting."""
        counts = self.counts
        for bucket in map(bisect_left, repeat(self.bounds), values):
            counts[bucket] += 1
        self.sum += sum(values)


class Histogram:
    """A histogram: one series for each set of labels."""

    __slots__ = ("_row", "_series")

    def __init__(self, row: Metric) -> None:
        self._row = row
        self._series: dict[Labels, HistogramSeries] = {}

    def labels(self, labels: Labels) -> HistogramSeries:
        """The series with these labels; callers that observe often keep it."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = HistogramSeries(self._row.buckets)
        return series

    def snapshot(self) -> dict[Labels, list[float]]:
        """For each set of labels the counts of all buckets and of the one beyond the last, then the sum."""
        return {labels: [*series.counts, series.sum] for labels, series in self._series.items()}

    def restore(self, values: dict[Labels, list[float]]) -> None:
        """Replace all series by these values."""
        self._series = {}
        for labels, numbers in values.items():
            series = self.labels(labels)
            series.counts = [int(number) for number in numbers[:-1]]
            series.sum = numbers[-1]

    def family(self) -> Family:
        """All series, with cumulative buckets, for the exposition."""
        family = HistogramMetricFamily(self._row.name, self._row.help, labels=self._row.labels)
        for labels, series in tuple(self._series.items()):
            family.add_metric(labels, list(self._cumulative(series.counts)), series.sum)
        return family

    def _cumulative(self, counts: list[int]) -> Iterator[tuple[str, float]]:
        total = 0
        for bound, number in zip((*self._row.buckets, float("inf")), counts, strict=True):
            total += number
            yield "+Inf" if bound == float("inf") else str(bound), total
