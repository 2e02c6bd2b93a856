"""Sends rows to the gateway, with a limited concurrency, and makes the output line of each row.

The gateway itself retries a call that failed before its first content. This module repeats the whole request, because a
gateway may be busy, restart or limit the rate for a longer time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from gateway.evaluate.running.gateways import HEADER_PREFIX, GatewayClient, GatewayUnreachable, HttpAnswer, NoAnswer
from gateway.evaluate.running.rows import DataRow

T = TypeVar("T")
MOST_RETRY_AFTER = 60.0
"""The maximum wait in seconds, even if ``retry-after`` asks for a longer wait."""

REPEATED = frozenset({408, 429, 503})
"""Statuses after which a request is always repeated. After another status of 500 or more, a request is repeated if the
answer does not contain ``x-should-retry: false``."""
NUMBERS: dict[str, Callable[[str], Any]] = {"attempts": int, "overhead_ms": float}
"""Provenance field that is a number in the output line → the type of the number."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How often a row is repeated, and after which delays."""

    retries: int
    """The maximum number of repetitions of one row."""
    first_delay: float = 0.5
    """Seconds before the first repetition. Each further delay is twice as long as the previous delay."""
    most_delay: float = 8.0
    """The maximum delay before a repetition, in seconds. A ``retry-after`` of the gateway may be longer."""


async def ask_all(
    gateway: GatewayClient,
    rows: Iterator[DataRow],
    limits: RetryLimits,
    concurrency: int,
    write: Callable[[bytes, bool], None],
) -> None:
    """Send all rows, and call ``write`` for each row with the output line and with whether the line has an answer.

    A line is written after the recording of its call, also if the rows end early. Other rows do not wait for it.
    Raises ``GatewayUnreachable`` and the errors of ``write``, after the running requests have been cancelled.
    """
    recorder, waiting = gateway.recorder, dict[Future[None], list[tuple[bytes, bool]]]()
    writer = asyncio.get_running_loop().create_future()
    writer.set_result(None)

    async def write_lines() -> None:
        while waiting:
            recorded = next(iter(waiting))
            await asyncio.shield(asyncio.wrap_future(recorded))
            for line in waiting.pop(recorded):
                write(*line)

    async def send_row(row: DataRow) -> None:
        nonlocal writer
        line = await ask(gateway, row, limits)
        if recorder is None:
            write(*line)
            return
        waiting.setdefault(recorder.written, []).append(line)
        if writer.done():
            await writer  # raises the errors of ``write``
            writer = asyncio.create_task(write_lines())

    try:
        await for_each(rows, concurrency, send_row)
    finally:
        if recorder is not None:
            recorder.flush()
        await writer


async def for_each(items: Iterator[T], concurrency: int, work: Callable[[T], Awaitable[None]]) -> None:
    """Await ``work`` for all items, with a limited concurrency. After an error, the running ones are cancelled."""

    async def take() -> None:
        for item in items:
            await work(item)

    tasks = [asyncio.create_task(take()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ask(gateway: GatewayClient, row: DataRow, limits: RetryLimits) -> tuple[bytes, bool]:
    """Send a row. Return the output line, and whether the line has an answer. Raises ``GatewayUnreachable``."""
    body = orjson.dumps(row.body)
    retries = 0
    while True:
        started = time.monotonic()
        try:
            outcome: Outcome = await gateway.post(row.url, body, row.custom_id)
        except (NoAnswer, GatewayUnreachable) as error:
            outcome = error
        seconds = time.monotonic() - started
        if retries == limits.retries or not should_repeat(outcome):
            break
        await asyncio.sleep(delay(outcome, retries, limits))
        retries += 1
    if isinstance(outcome, GatewayUnreachable):
        raise outcome
    return output_line(row, outcome, seconds, retries), isinstance(outcome, HttpAnswer) and outcome.status == 200


Outcome = HttpAnswer | NoAnswer | GatewayUnreachable


def should_repeat(outcome: Outcome) -> bool:
    """Return whether a request with this outcome may succeed if it is repeated later."""
    if not isinstance(outcome, HttpAnswer):
        return True
    if outcome.status < 500:
        return outcome.status in REPEATED
    return outcome.status in REPEATED or outcome.headers.get("x-should-retry") != "false"


def delay(outcome: Outcome, retries: int, limits: RetryLimits) -> float:
    """Return the seconds to wait before the next repetition. A random part spreads the repetitions of many rows."""
    after = outcome.headers.get("retry-after", "") if isinstance(outcome, HttpAnswer) else ""
    if after.isdecimal() and after.isascii():
        return min(float(after), MOST_RETRY_AFTER) + random.random() * limits.first_delay
    return min(limits.first_delay * 2.0**retries, limits.most_delay) * (0.75 + random.random() / 2)


def output_line(row: DataRow, outcome: HttpAnswer | NoAnswer, seconds: float, retries: int) -> bytes:
    """Return a line of OpenAI's batch output, with the row's provenance under ``gateway``."""
    response, error, provenance, request_id = None, None, dict[str, Any](), ""
    if isinstance(outcome, HttpAnswer):
        request_id = outcome.headers.get("x-request-id", "")
        response = {"status_code": outcome.status, "request_id": request_id, "body": _body(outcome.body)}
        provenance = _provenance(outcome)
    else:
        error = {"code": outcome.code, "message": str(outcome)}
    value = {
        "id": f"batch_req_{request_id.removeprefix('req_') or row.line}",
        "custom_id": row.custom_id,
        "response": response,
        "error": error,
        "gateway": {"line": row.line, "seconds": round(seconds, 6), "retries": retries, **provenance},
    }
    if row.kept:
        value["row"] = dict(row.kept)
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def _body(body: bytes) -> Any:
    """Return the JSON value of a body. A body that is not JSON, such as a proxy's error page, is returned as text."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace")


def _provenance(answer: HttpAnswer) -> dict[str, Any]:
    """Return the values of the ``x-gateway-*`` headers by name, such as ``prompt_sha256``."""
    values = [(header, value) for header, value in answer.headers.items() if header.startswith(HEADER_PREFIX)]
    named = {header.removeprefix(HEADER_PREFIX).replace("-", "_"): value for header, value in values}
    found = {name: NUMBERS.get(name, str)(value) for name, value in named.items() if name != "notice"}
    return found | ({"notices": named["notice"].split("; ")} if "notice" in named else {})
