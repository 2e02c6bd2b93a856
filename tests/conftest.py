"""Settings of the whole suite: bytecode is written, property tests use fixed examples, async tests have an event loop.

``pytest --hypothesis-profile=search`` generates new examples; a failing one becomes an ``@example`` of its test.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Iterator

# The tests start about 150 processes. Without bytecode each of them compiles the gateway and its libraries anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import pytest  # noqa: E402  (bytecode of these imports is written too)
from hypothesis import settings  # noqa: E402

from tests.support import virtual_clock  # noqa: E402
from tests.support.upstream.server import FaultyUpstream  # noqa: E402

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def up() -> Iterator[FaultyUpstream]:
    with FaultyUpstream() as server:
        yield server


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "virtual_clock: an async test whose time passes at once")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an ``async def`` test in an event loop of its own; ``virtual_clock``: see the module of this name."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    run = virtual_clock.run if pyfuncitem.get_closest_marker("virtual_clock") else asyncio.run
    run(test(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}))
    return True
