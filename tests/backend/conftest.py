"""One misbehaving upstream for all backend tests; it is left quiet by every one of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.upstream.server import RudeServer


@pytest.fixture(scope="session")
def rude() -> Iterator[RudeServer]:
    with RudeServer() as server:
        yield server


@pytest.fixture
def up(rude: RudeServer) -> Iterator[RudeServer]:
    """The server, whose last client must be gone within 250 ms of each test's end."""
    yield rude
    assert rude.wait(lambda: rude.active == 0, 0.25), "the upstream is still busy: its connection was not closed"
