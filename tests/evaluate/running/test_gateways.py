"""Requests to a running gateway that answers badly, and to one in this process whose recorder is slow.

``tests/cli/test_run.py`` has the good answers.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import pytest

from gateway.calls.service import Service
from gateway.evaluate.running.ask import RetryLimits, ask_all
from gateway.evaluate.running.gateways import (
    GatewayUnreachable,
    HttpAnswer,
    LocalGateway,
    LocalSource,
    NoAnswer,
    RemoteSource,
)
from gateway.evaluate.running.rows import DataRow
from gateway.server.reload import ConfigLoader
from gateway.server.runtime import Runtime
from gateway.storage.recorder import MAX_WAITING_SIZE, Recorder
from gateway.storage.recordings import open_recording
from tests.support.serving import write_files
from tests.support.world import HELLO


async def post(port: int, seconds: float = 60.0) -> HttpAnswer:
    async with RemoteSource(f"http://127.0.0.1:{port}/v1", None, seconds).open(1) as gateway:
        return await gateway.post("/v1/completions", b"{}")


def test_a_silent_gateway_is_left_after_the_timeout() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, pytest.raises(NoAnswer, match=r"the gateway did not answer within 0\.05 s") as left:
        asyncio.run(post(silent.getsockname()[1], 0.05))
    assert left.value.code == "timeout"


def test_a_closed_connection_is_no_answer() -> None:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def ask() -> HttpAnswer:
        async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
            return await post(server.sockets[0].getsockname()[1])

    with pytest.raises(NoAnswer, match="the connection to the gateway failed") as lost:
        asyncio.run(ask())
    assert lost.value.code == "no_answer"


def test_a_port_without_a_server_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(GatewayUnreachable, match=f"no gateway answers at http://127.0.0.1:{port}/v1"):
        asyncio.run(post(port))


CONFIG = """\
recordings: {path: unused.sqlite}
models: {talk: {template: chat, policy: full, targets: [{speaks: scripted, script: hello.yaml}]}}
"""


async def test_a_run_waits_for_its_recorder_and_no_recording_is_dropped(tmp_path: Path) -> None:
    write_files(tmp_path, {**HELLO, "gateway.yaml": CONFIG, "policies/full.yaml": "record: full\n"})
    loader, dropped = ConfigLoader(tmp_path / "gateway.yaml"), list[str]()
    runtime = Runtime(loader)
    await asyncio.to_thread(runtime.open, loader.load())
    recorder = Recorder(tmp_path / "calls.sqlite", dropped.append, max_waiting=8)
    runtime.state.stack = replace(runtime.state.stack, recorder=recorder)
    gateway = LocalGateway(Service(runtime.state), recorder)
    body = json.dumps({"model": "talk", "messages": [{"role": "user", "content": "hi"}]}).encode()
    for _ in range(75):
        answers = await asyncio.gather(*[gateway.post("/v1/chat/completions", body) for _ in range(4)])
        assert [one.status for one in answers] == [200] * 4
    recorder.close()
    await runtime.stop()
    assert dropped == []


def rows(folder: Path, number: int) -> list[DataRow]:
    write_files(folder, {**HELLO, "gateway.yaml": CONFIG, "policies/full.yaml": "record: full\n"})
    body = {"model": "talk", "messages": [{"role": "user", "content": "hi"}]}
    return [DataRow(custom_id=str(n), line=n + 1, url="/v1/chat/completions", body=body) for n in range(number)]


async def test_a_line_is_written_after_its_recording(tmp_path: Path) -> None:
    sent, config, path = rows(tmp_path, 250), tmp_path / "gateway.yaml", tmp_path / "calls.sqlite"
    found = list[int]()
    async with LocalSource(config, ConfigLoader(config).load(), path).open(8) as gateway:
        with closing(open_recording(path)) as file:

            def write(line: bytes, answered: bool) -> None:
                found.append(len(file.find_calls({"request_id": json.loads(line)["response"]["request_id"]}, last=9)))

            await ask_all(gateway, iter(sent), RetryLimits(retries=0), 8, write)
    assert found == [1] * 250


class Interrupted(Exception):
    """Ends a run."""


async def test_the_answered_rows_of_an_interrupted_run_are_written(tmp_path: Path) -> None:
    sent, config = rows(tmp_path, 9), tmp_path / "gateway.yaml"

    def interrupted() -> Iterator[DataRow]:
        yield from sent
        raise Interrupted

    lines = list[bytes]()
    async with LocalSource(config, ConfigLoader(config).load(), tmp_path / "calls.sqlite").open(1) as gateway:
        with pytest.raises(Interrupted):
            await ask_all(gateway, interrupted(), RetryLimits(retries=0), 1, lambda line, _: lines.append(line))
    assert len(lines) == len(sent)


async def test_a_recorded_run_ends_when_a_row_cannot_be_written(tmp_path: Path) -> None:
    # More rows than can be asked before the first of them is recorded, also on a slow disk.
    sent, config = repeat(rows(tmp_path, 1)[0], 500_000), tmp_path / "gateway.yaml"

    def write(line: bytes, answered: bool) -> None:
        raise OSError(28, "No space left on device")

    async with LocalSource(config, ConfigLoader(config).load(), tmp_path / "calls.sqlite").open(4) as gateway:
        with pytest.raises(OSError, match="No space left"):
            await ask_all(gateway, sent, RetryLimits(retries=0), 4, write)
    assert next(sent, None), "the other rows are not asked for"


async def test_more_calls_at_once_than_a_recorder_may_hold_are_all_recorded(tmp_path: Path) -> None:
    write_files(tmp_path, {**HELLO, "gateway.yaml": CONFIG, "policies/full.yaml": "record: full\n"})
    config, path = tmp_path / "gateway.yaml", tmp_path / "calls.sqlite"
    text = "x" * (MAX_WAITING_SIZE // 40)
    body = json.dumps({"model": "talk", "messages": [{"role": "user", "content": text}]}).encode()
    async with LocalSource(config, ConfigLoader(config).load(), path).open(60) as gateway:
        with closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN IMMEDIATE")  # the recorder waits
            answers = await asyncio.gather(*[gateway.post("/v1/chat/completions", body) for _ in range(60)])
        assert [one.status for one in answers] == [200] * 60
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM calls").fetchone() == (len(answers),)
