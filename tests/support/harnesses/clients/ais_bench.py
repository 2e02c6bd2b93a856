"""AISBench: chat in streams, and raw completions with its own meta template."""

from __future__ import annotations

from typing import Any

from tests.support.engines.environment import Packages
from tests.support.harnesses.client import Client
from tests.support.harnesses.clients.opencompass import score


def bench(kind: str, **more: Any) -> Client:
    return Client(
        name=f"ais-bench-{kind}",
        title=f"AISBench, {kind}",
        guide="ais-bench",
        environment="ais-bench",
        packages=Packages(("torch==2.13.0", "ais-bench-benchmark==3.1.20260630", "pyarrow<21")),
        command=lambda job: [
            *(f"{job.bin}/ais_bench", "ais_bench_sums.py", "--work-dir", "out", "--debug", "--dump-eval-details")
        ],
        files=("ais_bench_sums.py",),
        reads=("OPENAI_BASE_URL", "MODEL"),
        score=score,
        scores="out",
        seconds=600,
        variables={"AIS_BENCH": kind},
        **more,
    )


CLIENTS = (bench("chat"), bench("raw", needs=frozenset({"completions"}), own_format=True))
