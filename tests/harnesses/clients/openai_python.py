"""The openai package for Python: chat, and the gateway's own endpoint for log-likelihoods."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

PACKAGES = Packages(("openai==3.51.0",))

CLIENTS = (
    Client(
        name="openai-python",
        title="openai (Python)",
        guide="openai-sdk",
        packages=PACKAGES,
        command=lambda job: [f"{job.bin}/python", "openai_python.py"],
        files=("openai_python.py",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
    ),
    Client(
        name="openai-loglikelihood",
        title="openai (Python), log-likelihood",
        guide="openai-sdk",
        environment="openai-python",
        packages=PACKAGES,
        command=lambda job: [f"{job.bin}/python", "openai_loglikelihood.py"],
        files=("openai_loglikelihood.py",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
        needs=frozenset({"logprobs", "completions"}),
    ),
)
