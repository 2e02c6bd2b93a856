"""Configures the garbage collector and malloc, after the gateway is built and before the first call."""

from __future__ import annotations

import ctypes
import gc
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of ``mallopt``, from glibc's <malloc.h>."""
KEPT = 256 * 1024 * 1024
"""The most bytes of freed memory that the process keeps instead of returning them to the kernel."""
LARGEST = 32 * 1024 * 1024
"""The size in bytes of the largest freed block that the process keeps. glibc accepts no larger value."""
MALLOC_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")
"""Environment variables with which an operator configures malloc. If one of them is set, malloc is left unchanged."""


def tune_memory() -> None:
    """Exempt all existing objects from garbage collection, and keep freed memory for the next prompts."""
    # Modules, configuration and engines live as long as the process. Otherwise every full collection walks all of
    # them and delays every call (p99 40 ms → 12 ms).
    gc.collect()
    gc.freeze()
    # A batch of recordings is 4 000 objects, which the collector would search in vain after each 700 (5 % of a call).
    gc.set_threshold(10_000, 10, 10)
    is_configured = any(name in os.environ for name in MALLOC_VARIABLES)
    # A prompt of a megabyte needs about six blocks of a megabyte for a millisecond. By default glibc returns each block
    # to the kernel, which then clears every page of the next block. That is a quarter of the cost of a large prompt.
    # Other C libraries have no ``mallopt``, so nothing is changed for them.
    mallopt = None if is_configured else getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST)
        mallopt(M_TRIM_THRESHOLD, KEPT)
