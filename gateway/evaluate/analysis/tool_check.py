"""Compares tool calls with the tools of their request, whose schemas clients wrote.

The checks are those of structured output (``stream/json_schema``): limits, no document from elsewhere, a subprocess.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.rows import RunToolCall
from gateway.stream.json_schema.checker import JOB_MODULE, SCHEMA_CPU, answer_cpu
from gateway.stream.json_schema.limits import check_limits
from metatemplate.limited_process.process import JobNotDone, LimitedProcess

MAX_KEPT = 10_000


class ToolChecker:
    """Checks tool calls. The subprocess starts at the first check with a schema, and ends with this object."""

    def __init__(self) -> None:
        self._process = LimitedProcess(JOB_MODULE, "checks tool calls", max_waiting=1)
        self._usable: dict[str, bool] = {}
        """Schema → whether answers can be checked with it. A schema whose check has reached a limit is not used again,
        because each check would take as long."""
        self._checked: dict[tuple[str, str], bool | None] = {}
        """(Schema, arguments) → the result, for at most ``MAX_KEPT`` of them."""

    def is_valid(self, call: RunToolCall, tools: Sequence[Any] | None) -> bool | None:
        """Return whether a tool call has a JSON object as arguments, and fits one of the tools.

        ``tools``: the tools of the request in OpenAI's format. Returns None for an object that cannot be compared: the
        tools are not recorded (None), or the schema of the tool cannot be checked.
        """
        try:
            arguments = orjson.loads(call.arguments)
        except orjson.JSONDecodeError:
            return False
        if not isinstance(arguments, dict):
            return False
        fits = {self._fits(call, tool) for tool in tools} if tools is not None else {None}
        return True if True in fits else None if None in fits else False

    def _fits(self, call: RunToolCall, tool: Any) -> bool | None:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict):
            return None
        if function.get("name") != call.name:
            return False
        if function.get("parameters") is None:
            return True
        try:
            key = (orjson.dumps(function["parameters"]).decode(), call.arguments)
        except TypeError:  # a value that JSON does not allow, or one that is nested too deeply
            return None
        if key not in self._checked:
            if len(self._checked) >= MAX_KEPT:
                self._checked.clear()
            self._checked[key] = self._check(*key)
        return self._checked[key]

    def _check(self, schema: str, arguments: str) -> bool | None:
        if schema not in self._usable:
            self._usable[schema] = self._is_usable(schema)
        if not self._usable[schema]:
            return None
        try:
            reply, _ = self._process.call({"schema": schema, "answer": arguments}, answer_cpu(arguments))
        except JobNotDone:
            self._usable[schema] = False
            return None
        return None if "failed" in reply else reply["problem"] is None

    def _is_usable(self, schema: str) -> bool:
        value = orjson.loads(schema)
        try:
            if not isinstance(value, dict):
                return False
            check_limits(value, "parameters")
            reply, _ = self._process.call({"schema": schema}, SCHEMA_CPU)
        except (InvalidValue, JobNotDone):
            return False
        return reply.get("problem", "failed") is None
