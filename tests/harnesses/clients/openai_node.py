"""The openai package for Node."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

CLIENTS = (
    Client(
        name="openai-node",
        title="openai (Node)",
        guide="openai-sdk",
        packages=Packages(("openai@6.49.0",), node=True),
        command=lambda job: ["node", "openai_node.mjs"],
        files=("openai_node.mjs",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
    ),
)
