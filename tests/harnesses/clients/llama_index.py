"""LlamaIndex's class for OpenAI-compatible servers."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

CLIENTS = (
    Client(
        name="llama-index",
        title="LlamaIndex",
        guide="llama-index",
        packages=Packages(("llama-index-llms-openai-like==0.8.1",)),
        command=lambda job: [f"{job.bin}/python", "llama_index_sums.py"],
        files=("llama_index_sums.py",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
    ),
)
