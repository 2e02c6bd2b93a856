"""Each hostile schema is refused with a clear error, or checked within the limits. None opens a connection."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.core.errors import InvalidValue
from gateway.stream.json_schema.checker import SchemaChecker, UncheckableSchema
from gateway.stream.json_schema.response_format import read_answer_format
from tests.stream.json_schema.hostile_schemas import HOSTILE, SERVER, Hostile

PLACE = "response_format.json_schema.schema"


class CountingServer:
    """A server on loopback that counts its connections and answers each of them with an empty schema."""

    def __init__(self) -> None:
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{}")

    def close(self) -> None:
        """Stop listening."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture(scope="module")
def server() -> Iterator[CountingServer]:
    server = CountingServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def checker() -> Iterator[SchemaChecker]:
    checker = SchemaChecker()
    yield checker
    checker.close()


def at(value: Any, server: CountingServer) -> Any:
    """Return a schema, or a text, with the address of the server."""
    if isinstance(value, str):
        return value.replace(SERVER, server.address).replace(SERVER[5:], server.address[5:])
    if isinstance(value, list):
        return [at(one, server) for one in value]
    return {at(key, server): at(one, server) for key, one in value.items()} if isinstance(value, dict) else value


async def outcome(checker: SchemaChecker, schema: Any, answer: str) -> tuple[str, str, str | None]:
    """Return the result for a schema and an answer, the message, and the place that an error names."""
    value = {"type": "json_schema", "json_schema": {"name": "hostile", "schema": schema}}
    try:
        answer_format = read_answer_format(value)
    except InvalidValue as error:
        return "refused", error.message, error.param
    assert answer_format is not None
    try:
        await checker.check_schema(answer_format)
    except InvalidValue as error:
        return "invalid", error.message, error.param
    try:
        problem = await checker.problem(answer_format, answer)
    except UncheckableSchema as error:
        return "uncheckable answer", error.message, error.param
    return ("valid answer", "", PLACE) if problem is None else ("wrong answer", problem, PLACE)


@pytest.mark.parametrize("case", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_schema_is_refused_or_checked_and_opens_no_connection(
    case: Hostile, server: CountingServer, checker: SchemaChecker
) -> None:
    schema, answer = at(case.schema, server), at(case.answer, server)
    result, message, place = asyncio.run(outcome(checker, schema, answer))
    assert (result, case.says in message) == (case.result, True), message
    assert (place or "").startswith(PLACE)
    assert len(message) < 500
    assert server.connections == 0


def test_the_server_of_these_tests_counts_a_connection() -> None:
    server = CountingServer()
    with socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2]))) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.0 200")
    assert server.connections == 1
    server.close()
