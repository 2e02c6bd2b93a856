"""Load through the LiteLLM SDK, without a proxy: ``python -m bench.load.litellm_sdk PORT TASKS SECONDS``."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time

import uvloop

from bench.report.stats import percentile
from bench.scenarios import QUESTION

WARM_UP = 1.0
"""Seconds of calls before the measurement: the first call imports half of the SDK."""


async def measure(port: int, tasks: int, seconds: float) -> dict[str, float]:
    """Requests per second, latency and CPU time per request after the warm-up."""
    import litellm

    messages = [{"role": "user", "content": QUESTION}]
    latencies: list[float] = []

    async def call_until(end: float) -> None:
        while (began := time.monotonic()) < end:
            await litellm.acompletion(
                model="openai/bench",
                api_base=f"http://127.0.0.1:{port}/v1",
                api_key="none",
                messages=messages,
                max_tokens=64,
                temperature=0,
                max_retries=0,
            )
            latencies.append(time.monotonic() - began)

    async def run_tasks(duration: float) -> float:
        latencies.clear()
        began = time.monotonic()
        await asyncio.gather(*(call_until(began + duration) for _ in range(tasks)))
        return time.monotonic() - began

    await run_tasks(min(WARM_UP, seconds))
    cpu = _cpu_seconds()
    elapsed = await run_tasks(seconds)
    used = _cpu_seconds() - cpu
    return {
        "requests_per_second": len(latencies) / elapsed,
        "p50_ms": percentile(latencies, 50) * 1000,
        "p99_ms": percentile(latencies, 99) * 1000,
        "errors": 0,
        "cpu_us": used / len(latencies) * 1e6,
        "core_busy": used / elapsed,
    }


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print the metrics as one line of JSON."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    port, tasks, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    print(json.dumps(uvloop.run(measure(port, tasks, seconds))))


if __name__ == "__main__":
    main()
