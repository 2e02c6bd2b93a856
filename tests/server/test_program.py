"""Calls of a Python program, without HTTP: the same answers, records and limits as over HTTP, and how they end."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

import gateway
from gateway.calls.endpoints.cancellation import ClientStalled
from gateway.core.errors import ConfigError
from tests.support.serving import Gateway, eventually, write_files
from tests.support.world import gateway_fixture, key_file

CHAT, HI = "/v1/chat/completions", [{"role": "user", "content": "hi"}]
SCRIPTS = {
    "hello": "[Hel, lo, {finish: stop}, {usage: [7, 2]}]",
    "broken": "[{error: upstream_error}]",
    "breaks": "[Hel, {error: upstream_disconnected}]",
    "silent": "[{pause: 600}]",
    "slow": "[Hel, {pause: 600}]",
    "quick": "[Hel, {pause: 0.3}, lo, {finish: stop}]",
    "long": f"[{'a, ' * 50}{{finish: stop}}]",
}
POLICIES = {"rare": "limits: {requests_per_minute: 1}", "one": "limits: {concurrency: 1, queue_wait: 60s}"}
FILES = {
    **{f"{name}.yaml": f"{script}\n" for name, script in SCRIPTS.items()},
    **{f"policies/{name}.yaml": f"{policy}\n" for name, policy in POLICIES.items()},
    "policies/default.yaml": "record: full\ndelivery: {retry: {attempts: 1}, timeout: {idle: 1s}}\n",
    "keys.yaml": key_file({"hello-only": "models: [hello]"}),
}
CONFIG = "keys: {file: keys.yaml}\nrecordings: {path: calls.sqlite}\nserver: {drain: 400ms}\nmodels:\n" + "".join(
    f"  {name}: {{template: sft-demo, targets: [{{speaks: scripted, script: {script}.yaml}}]{more}}}\n"
    for name, script, more in [
        *[(name, name, "") for name in SCRIPTS],
        ("rare", "hello", ", policy: rare"),
        ("one", "slow", ", policy: one"),
    ]
)
served = gateway_fixture(CONFIG, {**FILES, "keys.yaml": key_file({"hello-only": "models: [hello]", "all": ""})})


@asynccontextmanager
async def program(folder: Path) -> AsyncIterator[gateway.Gateway]:
    write_files(folder, {"gateway.yaml": CONFIG, **FILES})
    async with gateway.Gateway(folder / "gateway.yaml", {}) as one:
        yield one


def chat(model: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": HI, **fields}


TIMES = ("seconds", "upstream_first", "upstream", "client_wait", "overhead")


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of the lines of calls, without what is different over HTTP: the key and the times."""
    lines = [one.fields for one in caplog.records if one.name == "gateway.calls"]  # type: ignore[attr-defined]
    return [{name: value for name, value in one.items() if name not in ("key", *TIMES)} for one in lines]


def without_times(text: str) -> str:
    return re.sub(r'"(created|created_at|completed_at|overhead_ms)":\s*[\d.]+', r'"\1":0', text)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "an answer": (CHAT, chat("hello")),
    "a stream": (CHAT, chat("hello", stream=True, stream_options={"include_usage": True})),
    "an answer with its explanation": (CHAT, chat("hello", gateway={"explain": True})),
    "several turns": (CHAT, chat("hello", gateway={"turns": {"questions": ["and?"]}})),
    "a raw prompt": ("/v1/completions", {"model": "hello", "prompt": "hi", "stream": True}),
    "a response": ("/v1/responses", {"model": "hello", "input": "hi"}),
    "a rendered prompt": ("/v1/render", chat("hello")),
    "a wrong field": (CHAT, chat("hello", temperature="hot")),
    "an unknown model": (CHAT, chat("unknown")),
    "a failing target": (CHAT, chat("broken")),
    "a stream that breaks off": (CHAT, chat("breaks", stream=True)),
    "a rate": (CHAT, chat("rare")),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_call_of_a_program_has_the_answer_and_the_record_of_http(
    case: str, served: Gateway, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, body = CASES[case]
    sent = {"x-request-id": f"case-{list(CASES).index(case)}", "x-gateway-run": "r", "x-gateway-row": "1"}
    over_http = served.http.post(path, json=body, headers={**sent, "authorization": "Bearer all"})
    assert eventually(lambda: lines_of(caplog))
    async with program(tmp_path) as one:
        answer = await one.call(path, body, headers=sent)
        assert answer.status == over_http.status_code
        assert without_times(answer.body.decode()) == without_times(over_http.text)
        changing = ("x-gateway-overhead-ms", "openai-processing-ms", "retry-after", "x-ratelimit-reset-requests")
        assert {name for name in over_http.headers if name.startswith("x-gateway")} <= answer.headers.keys()
        assert answer.headers.keys() <= over_http.headers.keys()
        for name in answer.headers.keys() - changing:
            assert answer.headers[name] == over_http.headers[name]
        line_over_http, line = lines_of(caplog)
        assert line == line_over_http
    kept = recorded(tmp_path, sent["x-request-id"])
    assert eventually(lambda: recorded(served.folder, sent["x-request-id"]) == kept)


CHANGING = ("id", "time", "key", "duration", "first_token", "call", "events", *TIMES)


def recorded(folder: Path, request_id: str) -> list[Any]:
    """The recording of a call and its exchanges, without times and what is different over HTTP."""
    with closing(sqlite3.connect(folder / "calls.sqlite")) as database:
        if not database.execute("SELECT * FROM sqlite_master").fetchall():
            return []
        found = []
        for query in (
            "SELECT * FROM calls WHERE request_id = ?",
            "SELECT exchanges.* FROM exchanges JOIN calls ON call = calls.id WHERE request_id = ? ORDER BY 1",
        ):
            rows = database.execute(query, (request_id,))
            names = [column[0] for column in rows.description]
            found += [{n: v for n, v in zip(names, row, strict=True) if n not in CHANGING} for row in rows]
    return found


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.calls")


LEAVES = {"before the first event": "silent", "after the first event": "slow"}


@pytest.mark.parametrize("when", LEAVES)
async def test_a_program_that_leaves_a_stream_ends_the_call(
    when: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with program(tmp_path) as one:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2 if when == "before the first event" else None):
                async with one.open(CHAT, chat(LEAVES[when], stream=True)) as answer:
                    async for event in answer:
                        if event["choices"][0]["delta"].get("content"):
                            break
        assert status(caplog) == (499, "client_gone")
        assert in_flight(one) == 0


async def test_a_program_that_leaves_during_a_write_ends_the_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with program(tmp_path) as one:
        async with one.open(CHAT, chat("long", stream=True)) as answer:
            assert answer.status == 200  # the first part is written, and not read
        assert status(caplog) == (499, "client_gone")


async def test_a_program_that_leaves_a_whole_answer_does_not_change_its_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with program(tmp_path) as one:
        async with one.open(CHAT, chat("hello")) as answer:
            assert answer.status == 200
        assert status(caplog) == (200, "ok")


async def test_a_cancelled_task_of_a_program_ends_its_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with program(tmp_path) as one:
        task = asyncio.create_task(one.call(CHAT, chat("silent")))
        await until(lambda: in_flight(one) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert status(caplog) == (499, "client_gone")


async def test_a_program_that_does_not_read_is_stalled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with program(tmp_path) as one, one.open(CHAT, chat("long", stream=True)) as answer:
        await until(lambda: bool(lines_of(caplog)))
        assert status(caplog) == (499, "client_stalled")
        with pytest.raises(ClientStalled):
            await answer.read()


async def test_a_stream_has_its_events_as_they_arrive(tmp_path: Path) -> None:
    async with program(tmp_path) as one, one.open(CHAT, chat("slow", stream=True)) as answer:
        assert (answer.status, answer.headers["x-gateway-target"]) == (200, "slow/0")
        async for event in answer:
            if (text := event["choices"][0]["delta"].get("content")) is not None:
                assert text == "Hel"
                break
        assert in_flight(one) == 1


async def test_an_answer_can_be_read_again(tmp_path: Path) -> None:
    async with program(tmp_path) as one, one.open(CHAT, chat("hello", stream=True)) as answer:
        events = [event async for event in answer]
        body = await answer.read()
        assert body == await answer.read()
    assert [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")] == events


async def test_a_stream_that_fails_has_its_error_as_the_last_event(tmp_path: Path) -> None:
    async with program(tmp_path) as one, one.open(CHAT, chat("breaks", stream=True)) as answer:
        events = [event async for event in answer]
    assert (answer.status, events[-1]["error"]["code"]) == (200, "upstream_disconnected")


@pytest.mark.parametrize("model", ["silent", "slow"])
async def test_a_call_that_outlasts_the_drain_ends_with_an_error(
    model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with program(tmp_path) as one:
        task = asyncio.create_task(one.call(CHAT, chat(model, stream=True)))
        await until(lambda: in_flight(one) == 1)
        await asyncio.sleep(0.1)  # the first event has arrived
    answer = await task
    code = json.loads(answer.body.removesuffix(b"data: [DONE]\n\n").strip().split(b"data: ")[-1])["error"]["code"]
    assert code == "server_draining"
    assert status(caplog) == (503 if model == "silent" else 200, "server_draining")


async def test_a_call_that_ends_during_the_drain_is_whole(tmp_path: Path) -> None:
    async with program(tmp_path) as one:
        task = asyncio.create_task(one.call(CHAT, chat("quick")))
        await until(lambda: in_flight(one) == 1)
    assert json.loads((await task).body)["choices"][0]["message"]["content"] == "Hello"


async def test_a_call_after_the_drain_is_refused(tmp_path: Path) -> None:
    async with program(tmp_path) as one:
        pass
    answer = await one.call(CHAT, chat("hello"))
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "overloaded")


async def test_a_call_waits_in_the_queue_of_its_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with program(tmp_path) as one, one.open(CHAT, chat("one", stream=True)):
        waiting = asyncio.create_task(one.call(CHAT, chat("one", stream=True)))
        await until(lambda: in_flight(one) == 2)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert status(caplog) == (499, "client_gone")


async def test_a_key_of_a_program_has_its_rights(tmp_path: Path) -> None:
    async with program(tmp_path) as one:
        assert (await one.call(CHAT, chat("hello"), key="hello-only")).status == 200
        assert (await one.call(CHAT, chat("broken"), key="hello-only")).status == 404
        assert (await one.call(CHAT, chat("hello"), key="wrong")).status == 401


async def test_a_program_gets_changed_files(tmp_path: Path) -> None:
    async with program(tmp_path) as one:
        (tmp_path / "gateway.yaml").write_text(CONFIG.replace("  quick:", "  renamed:"))
        assert await one.reload()
        assert [(await one.call(CHAT, chat(model))).status for model in ("quick", "renamed")] == [404, 200]
        (tmp_path / "gateway.yaml").write_text("models: 1\n")
        assert not await one.reload()
        assert (await one.call(CHAT, chat("renamed"))).status == 200


async def test_a_body_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {"gateway.yaml": CONFIG.replace("drain: 400ms", "max_body: 1KiB"), **FILES})
    async with gateway.Gateway(tmp_path / "gateway.yaml", {}) as one:
        answer = await one.call(CHAT, chat("hello", user="x" * 2000))
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (413, "body_too_large")


async def test_a_configuration_with_problems_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text("models: 1\n")
    with pytest.raises(ConfigError):
        async with gateway.Gateway(tmp_path / "gateway.yaml", {}):
            pass


def status(caplog: pytest.LogCaptureFixture) -> tuple[int, str]:
    """The status and the outcome of the only call."""
    [line] = lines_of(caplog)
    return line["status"], line["outcome"]


def in_flight(one: gateway.Gateway) -> float:
    return sum(series.value for series in one._runtime.metrics.in_flight.values())


async def until(condition: Callable[[], bool]) -> None:
    assert await asyncio.to_thread(eventually, condition)
