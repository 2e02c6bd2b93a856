"""Median, minimum, maximum and percentiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """One metric over all rounds."""

    median: float
    minimum: float
    maximum: float


def summarize(values: Sequence[float]) -> Stats:
    """The statistics of at least one value."""
    return Stats(percentile(values, 50), min(values), max(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """Percentile with linear interpolation; 0 for an empty sequence."""
    if not values:
        return 0.0
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
