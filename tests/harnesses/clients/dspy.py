"""DSPy."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

CLIENTS = (
    Client(
        name="dspy",
        title="DSPy",
        guide="dspy",
        packages=Packages(("dspy==3.4.1", "litellm==1.106.2")),
        command=lambda job: [f"{job.bin}/python", "dspy_sums.py"],
        files=("dspy_sums.py",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
    ),
)
