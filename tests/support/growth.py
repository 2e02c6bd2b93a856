"""A check of linear run time by the ratio of two runs, which does not depend on the machine's speed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

FACTOR = 4
LIMIT = 10.0
"""Between ``FACTOR`` (linear) and its square."""
FLOOR = 0.1
"""Seconds of processor time that are too short to compare."""


def assert_linear(run: Callable[[int], object], size: int) -> None:
    """Assert that ``run(FACTOR * size)`` takes less than ``LIMIT`` times as long as ``run(size)``, in three tries."""
    for _ in range(3):
        small, large = _seconds(run, size), _seconds(run, FACTOR * size)
        if large < LIMIT * small + FLOOR:
            return
    raise AssertionError(f"{size}: {small:.2f} s of processor time, {FACTOR * size}: {large:.2f} s")


def _seconds(run: Callable[[int], object], size: int) -> float:
    """The processor time of a run without the garbage collector, which would walk the objects of all earlier tests."""
    gc.disable()
    try:
        begun = time.process_time()
        run(size)
        return time.process_time() - begun
    finally:
        gc.enable()
