"""How processor time grows with the size of the work, judged so that a busy machine gives the same answer."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMES = 8
"""The large work is so many times the small one; linear work takes as many times as long, quadratic work 64 times."""
MOST = 30.0
TRIES = 3


def grows_linearly(work: Callable[[int], object], size: int) -> bool:
    """True if ``work(8 * size)`` costs far less than 64 times ``work(size)``, in one of three tries."""
    return any(_cost(work, TIMES * size) < MOST * max(_cost(work, size), 0.001) for _ in range(TRIES))


def _cost(work: Callable[[int], object], size: int) -> float:
    """Seconds of this process's processor time."""
    began = time.process_time()
    work(size)
    return time.process_time() - began
