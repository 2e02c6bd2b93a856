"""Agents: programs in which a model calls functions until its task is done. The score is the share of passed steps."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.engines.environment import Packages
from tests.support.harnesses.client import Client, Job

TASK = "How many lines has sums.jsonl?"


def command(job: Job) -> list[str]:
    provider = f'model_providers.gateway.base_url="{job.base_url}"'
    return [f"{job.bin}/codex", "exec", "--skip-git-repo-check", "--json", "--model", job.model, "-c", provider, TASK]


def score(folder: Path, output: str) -> float:
    """The share of three steps: a function of a namespace answers, a command runs, and its output reaches the model.

    The function refuses the agent ``none``, which does not exist.
    """
    events = [json.loads(line) for line in output.splitlines() if line.startswith('{"type":"item.completed"')]
    items = [event["item"] for event in events]
    lines = len((folder / "sums.jsonl").read_text(encoding="utf-8").splitlines())
    steps = (
        "invalid agent id none" in output,
        any(item.get("aggregated_output") == f"{lines}\n" and item["exit_code"] == 0 for item in items),
        any(item["type"] == "agent_message" and item["text"] == f"It printed {lines}." for item in items),
    )
    return sum(steps) / len(steps)


CLIENTS = (
    Client(
        name="codex",
        title="Codex CLI",
        guide="codex",
        packages=Packages(("@openai/codex@0.169.0",), node=True),
        command=command,
        files=("codex/config.toml",),
        score=score,
        variables={"CODEX_HOME": "codex"},
    ),
)
