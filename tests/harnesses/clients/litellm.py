"""LiteLLM's SDK."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

CLIENTS = (
    Client(
        name="litellm-sdk",
        title="LiteLLM SDK",
        guide="litellm-sdk",
        packages=Packages(("litellm==1.106.2",)),
        command=lambda job: [f"{job.bin}/python", "litellm_sums.py"],
        files=("litellm_sums.py",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
        variables={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},  # no download of prices
    ),
)
