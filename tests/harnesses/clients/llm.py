"""The library of the command `llm`."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

CLIENTS = (
    Client(
        name="llm",
        title="llm",
        guide="llm",
        packages=Packages(("llm==0.36",)),
        command=lambda job: [f"{job.bin}/python", "llm_sums.py"],
        files=("llm_sums.py",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
    ),
)
