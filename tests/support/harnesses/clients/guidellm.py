"""GuideLLM: a load test, whose answers are counted too."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.engines.environment import Packages
from tests.support.harnesses.client import Client, Job


def command(job: Job) -> list[str]:
    backend = f"kind=openai_http,target={job.base_url},model={job.model},request_format=/v1/chat/completions"
    return [
        *(f"{job.bin}/guidellm", "run", "--backend", f"{backend},max_tokens=16"),
        *("--tokenizer", f"kind=hf_auto,model={job.tokenizer}", "--data", "kind=json_file,path=sums.jsonl"),
        *("--profile", "kind=concurrent,streams=4", "--constraint", "kind=max_requests,count=100"),
        *("--disable-console-interactive", "--output", "kind=json,path=out.json"),
    ]


def score(folder: Path, output: str) -> float:
    """The share of right answers among all questions, from the requests that the report lists."""
    lines = (folder / "sums.jsonl").read_text(encoding="utf-8").splitlines()
    right = {row["question"]: row["answer"] for row in map(json.loads, lines)}
    (benchmark,) = json.loads((folder / "out.json").read_text(encoding="utf-8"))["benchmarks"]
    said = {}
    for request in benchmark["requests"]["successful"]:
        (message,) = json.loads(request["request_args"])["body"]["messages"]
        said[message["content"][0]["text"]] = request["output"]
    return [said.get(question) == answer for question, answer in right.items()].count(True) / len(right)


CLIENTS = (
    Client(
        name="guidellm",
        title="GuideLLM",
        guide="guidellm",
        packages=Packages(("torch==2.13.0", "guidellm==0.8.1")),
        command=command,
        score=score,
    ),
)
