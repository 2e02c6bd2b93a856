"""The gateway as a Starlette application, for other ASGI servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette

from gateway.edge.app import App
from gateway.edge.asgi import AsgiAdapter, starlette_app
from gateway.server.reload import ConfigLoader
from gateway.server.runtime import Runtime


def create_app(config: str | Path, env: Mapping[str, str] | None = None) -> Starlette:
    """Return a Starlette application that serves ``config`` with the endpoints of ``server.endpoints``.

    This function loads the configuration, because Starlette runs no lifespan for mounted applications. The lifespan
    reloads changed files, and closes connections at the end. ``env`` contains the environment variables that override
    settings, by default the variables of the process. The listener belongs to the ASGI server, so the listener's
    settings under ``server`` have no effect: ``port``, ``workers``, ``admin``, ``drain``, ``tls`` and the limits of
    connections. ``host`` and ``allowed_hosts`` only decide which Host headers are accepted.

    Raises ``ConfigError``, with every problem, if the configuration cannot be loaded.
    """
    runtime = Runtime(ConfigLoader(Path(config), env))
    runtime.open(runtime.loader.load())
    runtime.metrics.set("gateway_workers", to=1)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        runtime.watch()
        try:
            yield
        finally:
            runtime.state.ending = True
            runtime.state.drain()
            await runtime.stop()

    return starlette_app(AsgiAdapter(App(runtime.state, viewer=runtime.open_pages())), lifespan)
