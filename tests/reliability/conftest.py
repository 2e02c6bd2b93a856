"""One gateway and its upstream for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.reliability.figures import open_world
from tests.support.world import World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(tmp_path_factory.mktemp("reliability")) as opened:
        yield opened
