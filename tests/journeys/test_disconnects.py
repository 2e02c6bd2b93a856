"""Clients that disconnect at random moments leave no running call."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import httpx

from tests.support.serving import ROOT, Gateway, eventually, gateway

CROWD = 80

CONFIG = f"""
models:
  slow:
    template: sft-demo
    targets: [{{speaks: embedded, path: {ROOT}/demo/model, options: {{token_delay: 0.03}}}}]
  over-http:
    template: chat
    targets: [{{speaks: chat, url: "%s", model: slow}}]
"""


def test_disconnects_at_any_moment_leave_no_running_call(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "client").mkdir()
    visitors = 0
    with (
        gateway(tmp_path / "server", CONFIG % "http://127.0.0.1:9/v1") as server,
        gateway(tmp_path / "client", CONFIG % server.url) as served,
    ):
        for seconds in (0.15, 0.6, 2.4):  # a busy machine needs longer until the first token
            asyncio.run(crowd(served, random.Random(7), seconds))
            visitors += CROWD
            for one in (served, server):
                assert one.wait_until_idle()
                assert eventually(lambda one=one: busy(one) == 0)
            left = [served.metric("gateway_client_gone_total", phase=phase) for phase in ("before_first", "mid_stream")]
            ok = sum(
                served.metric("gateway_requests_total", endpoint="chat", model=model, outcome="ok")
                for model in ("slow", "over-http")
            )
            if min(*left, ok) > 0:
                break
        assert min(*left, ok) > 0
        assert sum(left) + ok <= visitors  # some disconnected before their request was read
        assert server.metric("gateway_requests_total", endpoint="chat", model="slow", outcome="client_gone") > 0
        assert served.chat("over-http", "12+34=?", temperature=0).json()["choices"][0]["message"]["content"] == "46"


async def crowd(served: Gateway, rng: random.Random, seconds: float) -> None:
    """Run many clients; ``seconds`` is the longest time before one disconnects."""
    async with httpx.AsyncClient(
        trust_env=False, verify=False, timeout=60, limits=httpx.Limits(max_connections=None)
    ) as client:
        await asyncio.gather(*[visit(client, served, rng, number, seconds) for number in range(CROWD)])


async def visit(client: httpx.AsyncClient, served: Gateway, rng: random.Random, number: int, seconds: float) -> None:
    """Every fifth client reads the answer, which takes about 0.1 s; others disconnect before, during or after it."""
    arrival, patience = rng.uniform(0, 1.5), rng.uniform(0, seconds) if number % 5 else 60.0
    body = {
        "model": ("slow", "over-http")[number % 2],
        "messages": [{"role": "user", "content": "12+34=?"}],
        "stream": number % 3 > 0,
    }
    await asyncio.sleep(arrival)
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            answer = await client.post(f"{served.url}/chat/completions", json=body, timeout=60)
            assert answer.status_code == 200


def busy(served: Gateway) -> int:
    runtime = served.runtime
    return runtime.resources.load_engine(runtime.state.stack.snapshot.models["slow"].targets[0]).active
