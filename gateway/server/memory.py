"""What is done about memory, once everything is built and before the first call?"""

from __future__ import annotations

import ctypes
import gc
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Names of glibc's <malloc.h>."""
KEPT = 256 * 1024 * 1024
"""Bytes of freed memory that the process keeps for what comes next."""
LARGEST = 32 * 1024 * 1024
"""Bytes of the largest block that is kept so; glibc takes no larger value."""
THEIRS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")
"""Who sets one of these has a choice of their own: another threshold, or another allocator."""


def settle() -> None:
    """Spare the collector what never dies, and the kernel what is needed again at once."""
    _freeze()
    if not any(name in os.environ for name in THEIRS):
        _keep_freed()


def _freeze() -> None:
    """Modules, configuration, engines: objects that live as long as the process.

    Without this every full collection walks all of them, and each of them holds up every call (p99 40 ms → 12 ms).
    """
    gc.collect()
    gc.freeze()


def _keep_freed() -> None:
    """A megabyte of prompt is half a dozen blocks of a megabyte, taken and given back within a millisecond.

    As it comes, glibc returns each to the kernel, which has to clear every page of the next one: a quarter of what a
    large prompt costs. Other C libraries have no ``mallopt``, and nothing is done.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST)
        mallopt(M_TRIM_THRESHOLD, KEPT)
