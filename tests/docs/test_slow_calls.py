"""The log line alone tells slow, refused, cut off and failed calls apart: the table of docs/find-a-request.md."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.slow_calls import CASES, PAGE, TABLE, World, largest, play, read, world

ROUNDING = 0.0003
"""Seconds: the log rounds four times to 0.1 ms."""
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("slow")) as found:
        yield found


def rows() -> dict[str, str]:
    table = TABLE.search(TEXT)
    assert table is not None
    cells = [line.removeprefix("| ").removesuffix(" |").partition(" | ") for line in table[0].splitlines()]
    return {name: row for name, _, row in cells}


def test_the_table_has_the_cases_and_no_two_rows_are_equal() -> None:
    assert list(rows()) == list(CASES)
    assert len(set(rows().values())) == len(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_log_line_of_a_call_is_the_row_of_its_case(name: str, running: World) -> None:
    case = CASES[name]
    played = play(case, running)
    times = played.times
    assert played.row(case.slow) == rows()[name]
    assert case.slow in ("", largest(times)), times
    parts = times.get("queue_wait", 0.0) + times["upstream"] + times["overhead"]
    assert parts == pytest.approx(times["seconds"], abs=ROUNDING)
    assert times.get("upstream_first", 0.0) <= times["upstream"] + ROUNDING
    assert times.get("client_wait", 0.0) <= times["upstream"] + ROUNDING


def test_the_overhead_of_the_log_is_that_of_the_header_and_of_the_end_of_the_call(running: World) -> None:
    name, body = running.request("ok")
    answer = running.process.http.post("/v1/chat/completions", json=body, headers={"x-request-id": name})
    times = read(running.line(name)).times
    assert float(answer.headers["x-gateway-overhead-ms"]) / 1000 <= times["overhead"] + ROUNDING
    assert float(answer.headers["openai-processing-ms"]) / 1000 <= times["seconds"] + 0.001
