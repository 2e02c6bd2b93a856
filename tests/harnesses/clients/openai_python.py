"""The openai package for Python."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

CLIENTS = (
    Client(
        name="openai-python",
        title="openai (Python)",
        guide="openai-sdk",
        packages=Packages(("openai==3.51.0",)),
        command=lambda job: [f"{job.bin}/python", "openai_python.py"],
        files=("openai_python.py",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
    ),
)
