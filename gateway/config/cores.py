"""How many cores may this process use? Those it may run on, less what a container's quota takes away."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""As a container sees its own group: ``200000 100000`` (microseconds in each period) or ``max 100000``."""


def usable_cores(quota: Path = QUOTA) -> int:
    """At least one."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
    except (OSError, ValueError):  # no control groups here, or of an older kind
        return cores
    return cores if allowed == "max" else max(1, min(cores, math.ceil(int(allowed) / int(period))))
