"""The number of cores that this process may use: its CPU affinity, limited by a container's quota."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The container's cgroup file: ``200000 100000`` (microseconds in each period) or ``max 100000``."""


def usable_cores(quota: Path = QUOTA) -> int:
    """Return the number of usable cores, at least 1."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
    except (OSError, ValueError):  # no cgroups, or cgroups v1
        return cores
    return cores if allowed == "max" else max(1, min(cores, math.ceil(int(allowed) / int(period))))
