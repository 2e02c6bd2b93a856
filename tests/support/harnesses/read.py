"""Readers of scores."""

from __future__ import annotations

import re
from pathlib import Path


def printed(folder: Path, output: str) -> float:
    """The number after ``SCORE`` in the output of the scripts in ``CONFIGS``."""
    found = re.search(r"^SCORE ([\d.]+)$", output, re.MULTILINE)
    if found is None:
        raise ValueError("no line SCORE in the output")
    return float(found[1])


def newest(folder: Path, pattern: str) -> Path:
    """The newest file below ``folder`` that matches ``pattern``; ``ValueError`` if there is none."""
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        raise ValueError(f"no file {pattern}")
    return found[-1]
