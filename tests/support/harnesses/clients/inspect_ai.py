"""inspect-ai."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.engines.environment import Packages
from tests.support.harnesses.client import Client, Job
from tests.support.harnesses.read import newest


def command(job: Job) -> list[str]:
    return [
        *(f"{job.bin}/inspect", "eval", "inspect_sums.py", "--model", f"openai/{job.model}"),
        *("--model-base-url", job.base_url, "-M", "responses_api=false", "--max-tokens", "16", "--display", "plain"),
        *("--log-format", "json", "--log-dir", "logs"),
    ]


def score(folder: Path, output: str) -> float:
    log = json.loads(newest(folder, "logs/*.json").read_text(encoding="utf-8"))
    if log["status"] != "success":
        raise ValueError(log["error"]["message"])
    return float(log["results"]["scores"][0]["metrics"]["mean"]["value"])


CLIENTS = (
    Client(
        name="inspect-ai",
        title="inspect-ai",
        guide="inspect-ai",
        packages=Packages(("inspect-ai==0.3.285", "openai==3.54.0")),
        command=command,
        files=("inspect_sums.py",),
        reads=("OPENAI_API_KEY",),
        score=score,
        scores="logs",
    ),
)
