"""Rows are asked for a bounded number at once, and repeated where that may help."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from gateway.evaluate.running.ask import Outcome, RetryLimits, ask, ask_all, delay, should_repeat
from gateway.evaluate.running.gateways import GatewayClient, GatewayUnreachable, HttpAnswer, NoAnswer
from gateway.evaluate.running.rows import DataRow

LIMITS = RetryLimits(retries=2, first_delay=0.0)
ROW = DataRow(custom_id="a", line=3, url="/v1/chat/completions", body={"model": "m"}, kept={"answer": "2"})
OK = HttpAnswer(200, {"x-request-id": "req_1", "x-gateway-attempts": "2"}, b'{"choices": []}')
BUSY = HttpAnswer(503, {"retry-after": "0"}, b'{"error": {"code": "overloaded"}}')
REFUSED = HttpAnswer(400, {}, b'{"error": {"code": "invalid_value"}}')


class ScriptedGateway(GatewayClient):
    """Gives the outcomes in turn; the last one repeats."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.posts: list[tuple[str, bytes]] = []
        self.running = self.most = 0

    async def post(self, path: str, body: bytes, row: str = "") -> HttpAnswer:
        self.posts.append((path, body))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, HttpAnswer):
            return outcome
        raise outcome


def test_an_output_line_is_one_of_openais_batch_files() -> None:
    answer = HttpAnswer(
        200,
        {
            **OK.headers,
            "x-gateway-template": "t@sha256:1",
            "x-gateway-overhead-ms": "0.5",
            "x-gateway-notice": "default_parameter: a=1; split_calls",
        },
        OK.body,
    )
    line, answered = asyncio.run(ask(ScriptedGateway(answer), ROW, LIMITS))
    value = json.loads(line)
    assert answered
    assert line.endswith(b"}\n")
    assert value.pop("gateway").pop("seconds") >= 0
    assert value == {
        "id": "batch_req_1",
        "custom_id": "a",
        "response": {"status_code": 200, "request_id": "req_1", "body": {"choices": []}},
        "error": None,
        "row": {"answer": "2"},
    }
    assert {name: item for name, item in json.loads(line)["gateway"].items() if name != "seconds"} == {
        "line": 3,
        "retries": 0,
        "attempts": 2,
        "template": "t@sha256:1",
        "overhead_ms": 0.5,
        "notices": ["default_parameter: a=1", "split_calls"],
    }


REPEATS: dict[str, tuple[Sequence[Outcome], int, int | None, str | None]] = {
    # outcomes, requests, status in the line, code of the line's error
    "an answer": ([OK], 1, 200, None),
    "a busy gateway": ([BUSY, BUSY, OK], 3, 200, None),
    "a gateway that stays busy": ([BUSY], 3, 503, None),
    "a request that is refused": ([REFUSED], 1, 400, None),
    "a restarted gateway": ([GatewayUnreachable("gone"), OK], 2, 200, None),
    "a lost connection": ([NoAnswer("no_answer", "lost"), OK], 2, 200, None),
    "connections that are always lost": ([NoAnswer("no_answer", "lost")], 3, None, "no_answer"),
    "a page that is not JSON": ([HttpAnswer(404, {}, b"<html>")], 1, 404, None),
}


@pytest.mark.parametrize(("outcomes", "posts", "status", "code"), REPEATS.values(), ids=REPEATS)
def test_a_row_is_repeated_where_that_may_help(
    outcomes: Sequence[Outcome], posts: int, status: int | None, code: str | None
) -> None:
    gateway = ScriptedGateway(*outcomes)
    line, answered = asyncio.run(ask(gateway, ROW, LIMITS))
    value = json.loads(line)
    assert gateway.posts == [("/v1/chat/completions", b'{"model":"m"}')] * posts
    assert (value["response"] and value["response"]["status_code"]) == status
    assert (value["error"] and value["error"]["code"]) == code
    assert value["gateway"]["retries"] == posts - 1
    assert answered == (status == 200)


def test_a_row_is_not_written_if_there_is_no_gateway() -> None:
    with pytest.raises(GatewayUnreachable):
        asyncio.run(ask(ScriptedGateway(GatewayUnreachable("gone")), ROW, LIMITS))


STATUSES = {
    "too many requests": (HttpAnswer(429, {}, b""), True),
    "busy, whatever the gateway advises": (HttpAnswer(503, {"x-should-retry": "false"}, b""), True),
    "a failed target": (HttpAnswer(502, {}, b""), True),
    "a target that was asked again already": (HttpAnswer(502, {"x-should-retry": "false"}, b""), False),
    "no such model": (HttpAnswer(404, {}, b""), False),
    "an answer": (OK, False),
}


@pytest.mark.parametrize(("outcome", "repeated"), STATUSES.values(), ids=STATUSES)
def test_a_status_decides_whether_a_row_is_repeated(outcome: Outcome, repeated: bool) -> None:
    assert should_repeat(outcome) == repeated


def test_the_delay_doubles_up_to_its_limit_and_is_at_least_what_the_gateway_asks_for() -> None:
    limits = RetryLimits(retries=9)
    lost = NoAnswer("no_answer", "lost")
    for retries, seconds in enumerate([0.5, 1.0, 2.0, 4.0, 8.0, 8.0]):
        assert 0.75 * seconds <= delay(lost, retries, limits) <= 1.25 * seconds
    assert 30 <= delay(HttpAnswer(429, {"retry-after": "30"}, b""), 0, limits) <= 30.5
    assert 60 <= delay(HttpAnswer(429, {"retry-after": "3600"}, b""), 0, limits) <= 60.5


def rows(number: int) -> list[DataRow]:
    return [DataRow(custom_id=str(n), line=n + 1, url="/v1/completions", body={}) for n in range(number)]


def test_every_row_is_asked_for_once_and_not_too_many_at_once() -> None:
    gateway, lines = ScriptedGateway(OK), list[bytes]()
    asyncio.run(ask_all(gateway, iter(rows(50)), LIMITS, 4, lambda line, _: lines.append(line)))
    assert sorted(json.loads(line)["custom_id"] for line in lines) == sorted(row.custom_id for row in rows(50))
    assert gateway.most == 4


def test_all_rows_end_when_one_cannot_be_written() -> None:
    gateway = ScriptedGateway(OK)

    def write(line: bytes, answered: bool) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        asyncio.run(ask_all(gateway, iter(rows(50)), LIMITS, 4, write))
    assert len(gateway.posts) == 4
    assert gateway.running == 0
