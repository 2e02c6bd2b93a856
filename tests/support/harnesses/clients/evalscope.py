"""EvalScope."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.engines.environment import Packages
from tests.support.harnesses.client import Client, Job
from tests.support.harnesses.read import newest


def command(job: Job) -> list[str]:
    return [
        *(f"{job.bin}/evalscope", "eval", "--model", job.model, "--eval-type", "openai_api"),
        *("--api-url", job.base_url, "--api-key", "none", "--datasets", "general_qa"),
        *("--dataset-args", '{"general_qa": {"local_path": ".", "subset_list": ["sums"]}}'),
        *("--generation-config", '{"max_tokens": 16, "temperature": 0}', "--work-dir", "out"),
    ]


def score(folder: Path, output: str) -> float:
    """The benchmark's main metric: a row of one number is right or wrong in it."""
    report = json.loads(newest(folder, "out/*/reports/*/general_qa.json").read_text(encoding="utf-8"))
    (found,) = (one for one in report["metrics"] if one["identity"] == report["primary_metric_identity"])
    return float(found["score"])


CLIENTS = (
    Client(
        name="evalscope",
        title="EvalScope",
        guide="evalscope",
        packages=Packages(("torch==2.13.0", "evalscope==1.14.1")),
        command=command,
        score=score,
        scores="out",
    ),
)
