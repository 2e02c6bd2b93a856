"""Hugging Face's InferenceClient."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

CLIENTS = (
    Client(
        name="huggingface-hub",
        title="Hugging Face InferenceClient",
        guide="huggingface-hub",
        packages=Packages(("huggingface-hub==2.4.0",)),
        command=lambda job: [f"{job.bin}/python", "huggingface_sums.py"],
        files=("huggingface_sums.py",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
        variables={"HF_HUB_OFFLINE": "0"},  # in offline mode it refuses every call, also to a local address
    ),
)
