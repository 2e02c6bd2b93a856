"""Which tool calls fit the tools of their request, whose schemas are hostile or wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.evaluate.analysis.report import report_of
from gateway.evaluate.analysis.rows import RunAnswer, RunRow, RunToolCall
from gateway.evaluate.analysis.tool_check import ToolChecker
from tests.stream.json_schema.test_hostile_schemas import CountingServer

CHECKER = ToolChecker()


@pytest.fixture
def server() -> Iterator[CountingServer]:
    server = CountingServer()
    yield server
    server.close()


def tool(parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


UNCHECKED: dict[str, Any] = {
    "an unknown type": tool({"type": "foo"}),
    "a pattern that is not a pattern": tool({"properties": {"a": {"pattern": "("}}}),
    "a pattern that backtracks": tool({"properties": {"a": {"pattern": "^(a+)+$"}}}),
    "a reference to nothing": tool({"$ref": "#/nope"}),
    "a reference to itself": tool({"$ref": "#"}),
    "a list": tool([]),
    "a text": tool("object"),
    "a number beyond 64 bits": tool({"maximum": 1 << 70}),
    "a nested schema": tool(json.loads('{"not": ' * 300 + "{}" + "}" * 300)),
    "no function": {"type": "custom", "name": "f"},
    "a function that is a text": {"function": "f"},
    "a tool that is a text": "f",
}


@pytest.mark.parametrize("case", UNCHECKED)
def test_a_schema_that_cannot_be_used_leaves_the_call_unchecked(case: str) -> None:
    call = RunToolCall("f", json.dumps({"a": "a" * 40 + "!"}))
    answer = RunAnswer(tool_calls=(call,), finish_reason="tool_calls")
    report = report_of([RunRow("a", "m", answers=(answer,), tools=(UNCHECKED[case],))])
    assert (report.classes["whole"], report.unchecked_calls) == (1, 1)
    assert CHECKER.is_valid(RunToolCall("f", "{"), (UNCHECKED[case],)) is False
    assert CHECKER.is_valid(call, (UNCHECKED[case], tool({}))) is True


def test_no_document_is_loaded_from_elsewhere(server: CountingServer) -> None:
    call = RunToolCall("f", '{"a": 1}')
    for keyword in ("$ref", "$dynamicRef", "$schema"):
        assert CHECKER.is_valid(call, (tool({keyword: f"{server.address}/schema.json"}),)) is None
    base = {"$id": f"{server.address}/base.json", "properties": {"a": {"$ref": "other.json"}}}
    assert CHECKER.is_valid(call, (tool(base),)) is None
    assert server.connections == 0


def test_a_schema_that_reached_a_limit_is_not_used_again() -> None:
    slow = tool({"properties": {"a": {"pattern": "^(a+)+$"}, "b": {}}})
    calls = [RunToolCall("f", json.dumps({"a": "a" * 40 + "!", "b": number})) for number in range(1000)]
    assert {CHECKER.is_valid(call, (slow,)) for call in calls} == {
        None
    }  # 1000 checks of 0.3 s would exceed the test's limit


def test_arguments_are_json_and_not_nested_without_end() -> None:
    for arguments in ('{"a": NaN}', '{"a": ' * 100_000, "[" * 100_000, ""):
        assert CHECKER.is_valid(RunToolCall("f", arguments), None) is False
    assert CHECKER.is_valid(RunToolCall("f", '{"a": 1}'), (tool(None),)) is True
    assert CHECKER.is_valid(RunToolCall("g", '{"a": 1}'), (tool(None),)) is False
