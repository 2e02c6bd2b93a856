"""Series of counters, gauges and histograms as plain numbers, written by the one thread that serves.

prometheus-client takes a lock and looks up labels at every step; a call moves a dozen series, a stream one for each
token. So the numbers are kept here, and become families of prometheus-client when ``/metrics`` is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import repeat

Labels = tuple[str, ...]
"""The values of a series' labels, in the order of the metric's row."""


class NumberSeries:
    """One series of a counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def numbers(self) -> list[float]:
        """The value alone."""
        return [self.value]


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

    def numbers(self) -> list[float]:
        """The counts, then the sum."""
        return [*self.counts, self.sum]
