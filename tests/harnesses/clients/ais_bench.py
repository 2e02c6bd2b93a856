"""AISBench: chat in streams, and raw completions with its own meta template."""

from __future__ import annotations

from tests.engines.environment import Packages
from tests.harnesses.client import Client, Job
from tests.harnesses.clients.opencompass import score

PACKAGES = Packages(("torch==2.13.0", "ais-bench-benchmark==3.1.20260630", "pyarrow<21"))


def command(job: Job) -> list[str]:
    return [f"{job.bin}/ais_bench", "ais_bench_sums.py", "--work-dir", "out", "--debug"]


CLIENTS = (
    Client(
        name="ais-bench-chat",
        title="AISBench, chat",
        guide="ais-bench",
        environment="ais-bench",
        packages=PACKAGES,
        command=command,
        files=("ais_bench_sums.py",),
        reads=("BASE_URL", "MODEL"),
        score=score,
        seconds=600,
        variables={"AIS_BENCH": "chat"},
    ),
    Client(
        name="ais-bench-raw",
        title="AISBench, raw",
        guide="ais-bench",
        environment="ais-bench",
        packages=PACKAGES,
        command=command,
        files=("ais_bench_sums.py",),
        reads=("BASE_URL", "MODEL"),
        score=score,
        seconds=600,
        needs=frozenset({"completions"}),
        own_format=True,
        variables={"AIS_BENCH": "raw"},
    ),
)
