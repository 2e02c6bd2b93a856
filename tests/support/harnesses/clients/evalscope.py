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
    """The share of exact matches: the benchmark's own metrics are of text overlap."""
    lines = newest(folder, "out/**/reviews/**/*.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    said = [row["sample_score"]["score"]["extracted_prediction"].strip() for row in rows]
    right = [[text] == row["target"] for text, row in zip(said, rows, strict=True)]
    return right.count(True) / len(right)


CLIENTS = (
    Client(
        name="evalscope",
        title="EvalScope",
        guide="evalscope",
        packages=Packages(("torch==2.13.0", "evalscope==1.14.1")),
        command=command,
        score=score,
    ),
)
