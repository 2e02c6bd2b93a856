"""How is something counted in a tenth of a microsecond? In plain floats, by the one thread that serves.

prometheus-client locks and looks labels up at every step; a call moves a dozen series, a stream one for each token.
So the numbers live here, and the library's own families carry them out when ``/metrics`` is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import repeat

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family

from gateway.telemetry.names import Metric

Labels = tuple[str, ...]


class Count:
    """One series of a counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0.0) -> None:
        self.value = value


class Number:
    """A counter or a gauge: one float for each set of labels."""

    __slots__ = ("_row", "series")

    def __init__(self, row: Metric) -> None:
        self._row = row
        self.series: dict[Labels, Count] = {}

    def at(self, labels: Labels) -> Count:
        """The series with these labels, to be kept by whoever moves it often."""
        count = self.series.get(labels)
        if count is None:
            count = self.series[labels] = Count()
        return count

    def snapshot(self) -> dict[Labels, float]:
        """The values as they are now."""
        return {labels: count.value for labels, count in self.series.items()}

    def restore(self, values: dict[Labels, float]) -> None:
        """Have these values instead."""
        self.series = {labels: Count(value) for labels, value in values.items()}

    def family(self) -> Family:
        """All series, for the exposition."""
        kind = CounterMetricFamily if self._row.kind == "counter" else GaugeMetricFamily
        family = kind(self._row.name, self._row.help, labels=self._row.labels)
        for labels, count in tuple(self.series.items()):
            family.add_metric(labels, count.value)
        return family


class HistogramSeries:
    """One series of a histogram: a count per bucket, and the sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """One for each bucket, and one beyond the last."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One more observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: Sequence[float]) -> None:
        """So many more: a stream has hundreds, and a call for each would cost more than to count it."""
        counts = self.counts
        for place in map(bisect_left, repeat(self.bounds), values):
            counts[place] += 1
        self.sum += sum(values)


class Histogram:
    """A spread for each set of labels."""

    __slots__ = ("_row", "_series")

    def __init__(self, row: Metric) -> None:
        self._row = row
        self._series: dict[Labels, HistogramSeries] = {}

    def at(self, labels: Labels) -> HistogramSeries:
        """The series with these labels, to be kept by whoever observes often."""
        spread = self._series.get(labels)
        if spread is None:
            spread = self._series[labels] = HistogramSeries(self._row.buckets)
        return spread

    def snapshot(self) -> dict[Labels, list[float]]:
        """For each set of labels one count for each bucket and one beyond the last, then the sum."""
        return {labels: [*spread.counts, spread.sum] for labels, spread in self._series.items()}

    def restore(self, series: dict[Labels, list[float]]) -> None:
        """Have these series instead."""
        self._series = {labels: HistogramSeries(self._row.buckets) for labels in series}
        for labels, told in series.items():
            self._series[labels].counts = [int(number) for number in told[:-1]]
            self._series[labels].sum = told[-1]

    def family(self) -> Family:
        """All series, with the cumulative buckets Prometheus wants."""
        family = HistogramMetricFamily(self._row.name, self._row.help, labels=self._row.labels)
        for labels, spread in tuple(self._series.items()):
            family.add_metric(labels, list(self._cumulative(spread.counts)), spread.sum)
        return family

    def _cumulative(self, counts: list[int]) -> Iterator[tuple[str, float]]:
        total = 0
        for bound, number in zip((*self._row.buckets, float("inf")), counts, strict=True):
            total += number
            yield "+Inf" if bound == float("inf") else str(bound), total
