"""promptfoo."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.engines.environment import Packages
from tests.support.harnesses.client import Client, Job


def command(job: Job) -> list[str]:
    return [
        *(f"{job.bin}/promptfoo", "eval", "--config", "promptfooconfig.yaml", "--no-write", "--no-cache"),
        *("--no-progress-bar", "--no-table", "--max-concurrency", "4", "--output", "out.json"),
    ]


def score(folder: Path, output: str) -> float:
    counts = json.loads((folder / "out.json").read_text(encoding="utf-8"))["results"]["stats"]
    return float(counts["successes"] / (counts["successes"] + counts["failures"] + counts["errors"]))


CLIENTS = (
    Client(
        name="promptfoo",
        title="promptfoo",
        guide="promptfoo",
        packages=Packages(("promptfoo@0.121.20",), node=True),
        command=command,
        files=("promptfooconfig.yaml",),
        reads=("OPENAI_BASE_URL", "MODEL"),
        score=score,
        scores="out.json",
        variables={
            "PROMPTFOO_DISABLE_TELEMETRY": "1",
            "PROMPTFOO_DISABLE_UPDATE": "1",
            "PROMPTFOO_FAILED_TEST_EXIT_CODE": "0",  # wrong answers are a score, no failure
        },
    ),
)
