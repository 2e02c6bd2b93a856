"""OpenAI's Agents SDK."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

CLIENTS = (
    Client(
        name="agents-sdk",
        title="OpenAI Agents SDK",
        guide="agents-sdk",
        packages=Packages(("openai-agents==0.24.0",)),
        command=lambda job: [f"{job.bin}/python", "agents_sdk_sums.py"],
        files=("agents_sdk_sums.py",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
    ),
)
