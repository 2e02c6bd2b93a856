"""lm-evaluation-harness: generation over chat, and log-likelihoods over raw completions.

Raw completions are not templated by the gateway: the task's text holds the model's format, or lm-eval applies the chat
template of a tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.engines.environment import Packages
from tests.support.harnesses.client import Client, Job
from tests.support.harnesses.read import newest

PACKAGES = Packages(("lm-eval[api]==0.4.13", "torch==2.13.0", "transformers==5.23.0"))


def chat(job: Job) -> list[str]:
    arguments = f"model={job.model},base_url={job.base_url}/chat/completions,num_concurrent=4,max_retries=1"
    return [
        *(f"{job.bin}/lm-eval", "run", "--model", "local-chat-completions", "--model_args", arguments),
        *("--apply_chat_template", "--tasks", "sums", "--include_path", "lm_eval_tasks", "--output_path", "out"),
        "--log_samples",
    ]


def loglikelihood(job: Job) -> list[str]:
    arguments = (
        f"model={job.model},base_url={job.base_url}/completions,num_concurrent=4,max_retries=1,"
        f"tokenizer_backend=huggingface,tokenizer={job.tokenizer},tokenized_requests=False"
    )
    return [
        *(f"{job.bin}/lm-eval", "run", "--model", "local-completions", "--model_args", arguments),
        *("--tasks", "sums_choice", "--include_path", "lm_eval_tasks", "--output_path", "out"),
        "--log_samples",
    ]


def chat_template(job: Job) -> list[str]:
    arguments = (
        f"model={job.model},base_url={job.base_url}/completions,num_concurrent=4,max_retries=1,"
        f"tokenizer_backend=huggingface,tokenizer={job.tokenizer}"
    )
    return [
        *(f"{job.bin}/lm-eval", "run", "--model", "local-completions", "--model_args", arguments),
        *("--apply_chat_template", "--tasks", "sums_choice_chat", "--include_path", "lm_eval_tasks"),
        *("--output_path", "out", "--log_samples"),
    ]


def score_of(task: str, metric: str) -> Callable[[Path, str], float]:
    """Read one metric of one task from the newest results."""

    def score(folder: Path, output: str) -> float:
        results = json.loads(newest(folder, "out/**/results_*.json").read_text(encoding="utf-8"))
        return float(results["results"][task][f"{metric},none"])

    return score


def task(name: str, title: str, command: Callable[[Job], list[str]], task: str, metric: str, **more: Any) -> Client:
    return Client(
        name=f"lm-eval-{name}",
        title=f"lm-eval, {title}",
        guide="lm-eval",
        environment="lm-eval",
        packages=PACKAGES,
        command=command,
        files=(f"lm_eval_tasks/{task}.yaml",),
        reads=("OPENAI_API_KEY",),
        score=score_of(task, metric),
        scores="out",
        **more,
    )


SCORING = frozenset({"logprobs", "completions"})
CLIENTS = (
    task("chat", "chat", chat, "sums", "exact_match"),
    task("loglikelihood", "log-likelihood", loglikelihood, "sums_choice", "acc", needs=SCORING, own_format=True),
    task(
        "chat-template",
        "log-likelihood with chat template",
        chat_template,
        "sums_choice_chat",
        "acc",
        needs=SCORING | {"token_ids"},
    ),
)
