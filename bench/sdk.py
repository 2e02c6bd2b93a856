"""How fast is the bare LiteLLM SDK, called in a loop? ``python -m bench.sdk PORT TASKS SECONDS``."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time

import uvloop

from bench.scenarios import QUESTION
from bench.spread import percentile

WARM = 1.0
"""Seconds of calls that are not counted: the first one imports half of the SDK."""


async def loop(port: int, tasks: int, seconds: float) -> dict[str, float]:
    """Requests a second and processor time a request, after a warm-up."""
    import litellm

    messages = [{"role": "user", "content": QUESTION}]
    times: list[float] = []

    async def worker(end: float) -> None:
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
            times.append(time.monotonic() - began)

    async def round_of(length: float) -> float:
        times.clear()
        began = time.monotonic()
        await asyncio.gather(*(worker(began + length) for _ in range(tasks)))
        return time.monotonic() - began

    await round_of(min(WARM, seconds))
    before = _cpu()
    elapsed = await round_of(seconds)
    used = _cpu() - before
    return {
        "requests_per_second": len(times) / elapsed,
        "p50_ms": percentile(times, 50) * 1000,
        "p99_ms": percentile(times, 99) * 1000,
        "errors": 0,
        "cpu_us": used / len(times) * 1e6,
        "load": used / elapsed,
    }


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print one line of JSON."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    port, tasks, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    print(json.dumps(uvloop.run(loop(port, tasks, seconds))))


if __name__ == "__main__":
    main()
