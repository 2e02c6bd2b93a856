"""Every way to slice a stream that a test can afford, in the metadata of ``h11/tests/test_io.py``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any, TypeVar

Whole = TypeVar("Whole", str, bytes, tuple[Any, ...])


def slicings(whole: Whole, cuts: int = 2) -> Iterator[list[Whole]]:
    """All at once, one by one, and every way to cut it up to ``cuts`` times."""
    yield [whole]
    yield [whole[at : at + 1] for at in range(len(whole))]
    for number in range(1, cuts + 1):
        for places in combinations(range(1, len(whole)), number):
            yield sliced(whole, places)


def sliced(whole: Whole, places: tuple[int, ...] | list[int]) -> list[Whole]:
    """``whole`` cut at these places."""
    edges = [0, *places, len(whole)]
    return [whole[start:end] for start, end in pairwise(edges)]
