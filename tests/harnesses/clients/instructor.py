"""instructor."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client
from tests.harnesses.read import printed

CLIENTS = (
    Client(
        name="instructor",
        title="instructor",
        guide="instructor",
        packages=Packages(("instructor==1.17.0",)),
        command=lambda job: [f"{job.bin}/python", "instructor_sums.py"],
        files=("instructor_sums.py",),
        reads=("BASE_URL", "MODEL"),
        score=printed,
    ),
)
