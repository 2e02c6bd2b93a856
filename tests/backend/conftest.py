"""One misbehaving upstream for all backend tests; it is left quiet by every one of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.upstream.server import FaultyUpstream


@pytest.fixture(scope="session")
def upstream() -> Iterator[FaultyUpstream]:
    with FaultyUpstream() as server:
        yield server


@pytest.fixture
def up(upstream: FaultyUpstream) -> Iterator[FaultyUpstream]:
    """The server, whose last client must be gone within 250 ms of each test's end."""
    yield upstream
    assert upstream.wait(lambda: upstream.active == 0, 0.25), (
        "the upstream is still busy: its connection was not closed"
    )
