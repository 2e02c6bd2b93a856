"""The AI SDK for Node."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

CLIENTS = (
    Client(
        name="ai-sdk",
        title="AI SDK (Node)",
        guide="ai-sdk",
        packages=Packages(("ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92"), node=True),
        command=lambda job: ["node", "ai_sdk_sums.mjs"],
        files=("ai_sdk_sums.mjs",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
    ),
)
