"""Questions and answers over a socket pair, and what happens when a side goes."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import read_configuration
from gateway.core.errors import ConfigError, GatewayError, Problem
from gateway.server.processes.rpc import ChannelClosed, RpcChannel
from tests.support.serving import ROOT


async def nothing(kind: str, payload: Any) -> Any:
    raise AssertionError(f"nobody asked for {kind}")


async def both(answer: Any) -> tuple[RpcChannel, RpcChannel, socket.socket]:
    """The asking side, the answering side, and the asking side's socket."""
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    return await RpcChannel.over(one, nothing), await RpcChannel.over(other, answer), one


async def test_answers_find_their_questions_in_any_order() -> None:
    async def answer(kind: str, payload: Any) -> Any:
        await asyncio.sleep(0.05 if kind == "slow" else 0)
        return kind, payload

    one, other, _ = await both(answer)
    running = [asyncio.create_task(side.run()) for side in (one, other)]
    calls = (one.call("slow", 1), one.call("quick", b"x" * 3_000_000), one.call("slow", None))
    slow, quick, last = await asyncio.gather(*calls)
    for task in running:
        task.cancel()
    assert (slow, last) == (("slow", 1), ("slow", None))
    assert quick == ("quick", b"x" * 3_000_000)


def test_a_question_ends_when_the_other_side_is_gone() -> None:
    async def never(kind: str, payload: Any) -> Any:
        await asyncio.Event().wait()

    async def talk() -> None:
        one, other, _ = await both(never)
        running = [asyncio.create_task(side.run()) for side in (one, other)]
        asked = asyncio.create_task(one.call("anything"))
        await asyncio.sleep(0.05)
        other._writer.close()
        with pytest.raises(ChannelClosed):
            await asked
        await asyncio.gather(*running)
        assert one.closed
        with pytest.raises(ChannelClosed):
            await one.call("again")

    asyncio.run(asyncio.wait_for(talk(), 30))


def test_a_snapshot_travels_whole(tmp_path: Path) -> None:
    (tmp_path / "play.yaml").write_text("[hi, {finish: stop}]")
    (tmp_path / "gateway.yaml").write_text(
        "models:\n"
        "  a: {template: chat, targets: [{speaks: chat, url: 'http://127.0.0.1:1/v1', key: 'env:K'}]}\n"
        "  b: {template: chat, targets: [{speaks: scripted, script: play.yaml}]}\n"
        "  c: {template: internlm, targets: [{speaks: completions, url: 'http://127.0.0.1:1/v1', engine: vllm}]}\n"
    )
    for snapshot in (
        read_configuration(tmp_path / "gateway.yaml", {"K": "secret"}).snapshot,
        read_configuration(ROOT / "gateway.yaml", dict(os.environ)).snapshot,
    ):
        assert snapshot is not None
        again = pickle.loads(pickle.dumps(snapshot))
        assert again == snapshot
        assert again.models.keys() == snapshot.models.keys()


PROBLEM = Problem("gateway.yaml", 3, "models.a", "is wrong")


@pytest.mark.parametrize("error", [ConfigError((PROBLEM,)), GatewayError("no room")], ids=["problems", "a sentence"])
def test_a_refusal_is_raised_again_on_the_other_side(error: GatewayError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))
    assert getattr(again, "problems", ()) == getattr(error, "problems", ())
