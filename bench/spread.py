"""Which numbers stand for many? Medians and percentiles, as every table of the suite uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The rounds of one measurement."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Median, least and most of at least one value."""
    return Spread(percentile(values, 50), min(values), max(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """Interpolated between neighbours; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
