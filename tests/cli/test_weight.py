"""How heavy is the package before it does anything?"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.journeys.process import environment

HEAVY = ("litellm", "aiohttp", "uvicorn", "pydantic", "starlette", "prometheus_client", "numpy", "tokenizers", "yaml",
         "jinja2")  # fmt: skip

LIMIT = 0.3
"""Seconds, for all imports together."""

LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")


@pytest.mark.parametrize("command", [["-c", "import gateway"], ["-m", "gateway", "--help"]], ids=["import", "--help"])
def test_it_imports_little_and_at_once(command: Sequence[str]) -> None:
    best = 1e9
    for _ in range(3):  # the machine may be busy; once is enough
        ended = subprocess.run(
            [sys.executable, "-X", "importtime", *command],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        rows = LINE.findall(ended.stderr)
        assert rows
        loaded = {name.partition(".")[0] for _, name in rows}
        assert not loaded & set(HEAVY)
        best = min(best, sum(int(own) for own, _ in rows) / 1e6)
    assert best < LIMIT
