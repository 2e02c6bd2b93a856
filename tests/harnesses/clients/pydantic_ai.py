"""Pydantic AI."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

CLIENTS = (
    Client(
        name="pydantic-ai",
        title="Pydantic AI",
        guide="pydantic-ai",
        packages=Packages(("pydantic-ai-slim[openai]==2.68.0",)),
        command=lambda job: [f"{job.bin}/python", "pydantic_ai_sums.py"],
        files=("pydantic_ai_sums.py",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
    ),
)
