"""The checker works in another process, remembers schemas, replaces a killed process, and is fair between keys."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from gateway.core.errors import GatewayError, InvalidValue, Overloaded
from gateway.core.exchange import AnswerFormat
from gateway.stream.json_schema.checker import SchemaChecker, UncheckableSchema

OBJECT = AnswerFormat(schema={"type": "object", "required": ["a"]}, name="answer")
ENDLESS = AnswerFormat(schema={"pattern": "(a+)+$"}, name="answer")
SLOW_TEXT = '"' + "a" * 40 + '!"'
PLACE = "response_format.json_schema.schema"


def child(checker: SchemaChecker) -> subprocess.Popen[bytes]:
    process = checker._process._process
    assert process is not None
    return process


def test_the_gateways_process_does_not_import_jsonschema() -> None:
    program = (
        "import asyncio, sys\n"
        "from gateway.core.exchange import AnswerFormat\n"
        "from gateway.stream.json_schema.checker import SchemaChecker\n"
        "from gateway.stream.json_schema.response_format import read_answer_format\n"
        "value = {'type': 'json_schema', 'json_schema': {'name': 'a', 'schema': {'type': 'object'}}}\n"
        "checker, answer_format = SchemaChecker(), read_answer_format(value)\n"
        "asyncio.run(checker.check_schema(answer_format))\n"
        "print(asyncio.run(checker.problem(answer_format, '[]')))\n"
        "assert not {'jsonschema', 'referencing', 'rpds', 'attrs'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("$ must be an object, not a list\n", "")


def test_a_checker_checks_schemas_and_answers_in_a_process() -> None:
    async def run() -> None:
        checker = SchemaChecker()
        await checker.check_schema(OBJECT)
        assert await checker.problem(OBJECT, '{"a": 1}') is None
        assert await checker.problem(OBJECT, "{}") == '$ has no key "a", which is required'
        assert await checker.problem(AnswerFormat(), "[]") == "the text must be a JSON object, not a list"
        assert await checker.problem(AnswerFormat(), "{}") is None
        assert child(checker).pid != os.getpid()
        checker.close()

    asyncio.run(run())


def test_any_object_has_no_schema_to_check() -> None:
    checker = SchemaChecker()
    asyncio.run(checker.check_schema(AnswerFormat()))
    assert checker._process._process is None


def test_an_invalid_schema_is_named_with_its_place_each_time() -> None:
    wrong = AnswerFormat(schema={"properties": {"a": {"minimum": "1"}}}, name="answer")

    async def run(param: str) -> tuple[str, str | None]:
        with pytest.raises(InvalidValue) as raised:
            await checker.check_schema(replace(wrong, param=param))
        return raised.value.message, raised.value.param

    checker = SchemaChecker()
    place = f"{PLACE}.properties.a.minimum"
    assert asyncio.run(run("response_format")) == (f"{place} must be a number, not a string", place)
    checker.close()
    place = "text.format.schema.properties.a.minimum"
    assert asyncio.run(run("text.format")) == (f"{place} must be a number, not a string", place)
    assert checker._process._process is None  # the result of the first check was remembered


def test_a_remembered_schema_is_not_checked_again_and_the_oldest_is_forgotten() -> None:
    async def run() -> None:
        checker = SchemaChecker(max_checked=2)
        for number in (0, 1, 0, 2):
            await checker.check_schema(AnswerFormat(schema={"minimum": number}))
        checker.close()
        await checker.check_schema(AnswerFormat(schema=MappingProxyType({"minimum": 0})))
        assert checker._process._process is None
        await checker.check_schema(AnswerFormat(schema={"minimum": 1}))
        assert checker._process._process is not None

    asyncio.run(run())


def test_a_check_beyond_the_limit_is_an_error_and_the_next_one_is_done() -> None:
    async def run() -> None:
        checker = SchemaChecker()
        with pytest.raises(UncheckableSchema) as raised:
            await checker.problem(ENDLESS, SLOW_TEXT)
        assert raised.value.message == (
            f"the answer cannot be checked with {PLACE}: it takes longer than 0.3 s of processor time; send a simpler "
            "schema"
        )
        assert (raised.value.param, raised.value.code, raised.value.status) == (PLACE, "invalid_value", 400)
        assert await checker.problem(OBJECT, '{"a": 1}') is None

    asyncio.run(run())


def test_a_killed_process_is_replaced() -> None:
    async def run() -> None:
        checker = SchemaChecker()
        assert await checker.problem(OBJECT, '{"a": 1}') is None
        first = child(checker)
        first.kill()
        assert await checker.problem(OBJECT, "{}") is not None
        assert child(checker) is not first

    asyncio.run(run())


def test_a_key_with_slow_checks_does_not_delay_another_key_by_more_than_one_of_them() -> None:
    done: list[str] = []

    async def check(client: str, wanted: AnswerFormat, text: str) -> None:
        with suppress(UncheckableSchema):
            await checker.problem(wanted, text, client)
        done.append(client)

    async def run() -> None:
        slow = [AnswerFormat(schema={**(ENDLESS.schema or {}), "title": str(number)}) for number in range(4)]
        checks = [check("slow", one, SLOW_TEXT) for one in slow]
        await asyncio.gather(*checks, *[check("fast", OBJECT, '{"a": 1}') for _ in range(2)])

    checker = SchemaChecker()
    asyncio.run(run())
    assert done[:4].count("fast") == 2


def test_a_check_that_waits_too_long_is_an_overload() -> None:
    async def run() -> list[str | BaseException | None]:
        checks = [checker.problem(ENDLESS, SLOW_TEXT) for _ in range(2)]
        return await asyncio.gather(*checks, return_exceptions=True)

    checker = SchemaChecker(max_seconds=0.01)
    errors = asyncio.run(run())
    assert [type(error) for error in errors] == [Overloaded] * 2
    assert isinstance(errors[1], GatewayError)
    assert "too many JSON schemas are checked now, and this one waited 0.01 s" in errors[1].message


def test_a_process_that_cannot_be_started_is_an_overload() -> None:
    async def run() -> None:
        checker = SchemaChecker()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # no room for a pipe
        try:
            with pytest.raises(Overloaded, match="could not be started: Too many open files; retry later"):
                await checker.problem(OBJECT, "{}")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await checker.problem(OBJECT, '{"a": 1}') is None

    asyncio.run(run())


def test_an_idle_process_ends_and_the_next_check_starts_another() -> None:
    async def run() -> None:
        checker = SchemaChecker(idle_seconds=0.05)
        await checker.check_schema(OBJECT)
        first = checker._process._process
        if first is not None:
            await asyncio.to_thread(first.wait, 30)
        assert await checker.problem(OBJECT, '{"a": 1}') is None

    asyncio.run(run())


def test_the_process_ends_with_its_checker() -> None:
    def start() -> subprocess.Popen[Any]:
        checker = SchemaChecker()
        asyncio.run(checker.check_schema(OBJECT))
        return child(checker)

    process = start()
    gc.collect()
    process.wait(30)
