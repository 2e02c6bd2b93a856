"""LangChain's package for OpenAI-compatible servers."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

CLIENTS = (
    Client(
        name="langchain",
        title="LangChain",
        guide="langchain",
        packages=Packages(("langchain-openai==1.7.3",)),
        command=lambda job: [f"{job.bin}/python", "langchain_sums.py"],
        files=("langchain_sums.py",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
    ),
)
