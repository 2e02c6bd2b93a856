"""OpenCompass."""

from __future__ import annotations

import csv
from pathlib import Path

from tests.support.engines.environment import Packages
from tests.support.harnesses.client import Client, Job
from tests.support.harnesses.read import newest


def command(job: Job) -> list[str]:
    return [f"{job.bin}/opencompass", "opencompass_sums.py", "--work-dir", "out", "--debug"]


def score(folder: Path, output: str) -> float:
    """The accuracy in the summary, from per cent to a share."""
    with newest(folder, "out/*/summary/*.csv").open(encoding="utf-8", newline="") as lines:
        return float(next(iter(csv.DictReader(lines)))["demo"]) / 100


CLIENTS = (
    Client(
        name="opencompass",
        title="OpenCompass",
        guide="opencompass",
        packages=Packages(("torch==2.13.0", "opencompass==0.5.4", "pyarrow<21")),
        command=command,
        files=("opencompass_sums.py",),
        reads=("OPENAI_BASE_URL", "MODEL", "TOKENIZER"),
        score=score,
        scores="out",
        seconds=600,
    ),
)
