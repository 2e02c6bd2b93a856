"""Connections to a Redis or Valkey server. Imported if ``store.url`` is configured.

A failed or slow server delays a call by at most the configured timeout. After a failure no command is sent for one
second. Otherwise a client could switch a limit off, or slow down all calls, by making the server slow.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from gateway.config.snapshot import StoreSpec

LOG = logging.getLogger("gateway.store")

CONNECTIONS = 8
"""The maximum number of connections to the server. Further calls wait for a free connection. This wait does
not count as a failure of the server.

More connections would not be faster, and opening many at once would take longer than the timeout."""
PROBE_KEY = "meta-gateway:probe"
PAUSE = 1.0
"""Seconds for which a failed server is not asked again."""


class StoreUnavailable(Exception):
    """The server did not answer in time, answered with an error, or was not asked because of an earlier failure."""


class RedisServer:
    """The connections to a server for one purpose, with a timeout and one log line for each outage."""

    def __init__(self, spec: StoreSpec, use: str, meanwhile: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``use``: the purpose of the server. ``meanwhile``: the effect of an outage. Both texts appear in the log."""
        self._spec = spec
        self._use = use
        self._meanwhile = meanwhile
        self._clock = clock
        password = spec.password.get_secret_value() if spec.password is not None else None
        pool = ConnectionPool.from_url(
            spec.url,
            max_connections=CONNECTIONS,
            protocol=2,  # needs one round trip less to connect
            password=password,
            socket_connect_timeout=spec.timeout,
            socket_timeout=spec.timeout,
        )
        self.redis = Redis.from_pool(pool)
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._failed_until = 0.0
        self._failing = False
        self._refusals: set[str] = set()
        """The errors with which the server has refused a command. Each is logged once."""

    async def run(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """Run a command of ``redis`` and return the answer. Raises ``StoreUnavailable``.

        The timeout begins when the command has a connection.
        """
        async with self._slots:
            if self._clock() < self._failed_until:
                raise StoreUnavailable
            try:
                async with asyncio.timeout(self._spec.timeout):
                    answer = await command()
            except ResponseError as error:  # the server works, so it is asked again at once
                self._refused(error)
                raise StoreUnavailable from error
            except (RedisError, OSError, TimeoutError) as error:
                self._failed(error)
                raise StoreUnavailable from error
        if self._failing:
            self._failing = False
            LOG.info("%s answers again", self._use)
        return answer

    async def aclose(self) -> None:
        """Close the connections."""
        await self.redis.aclose()

    def _failed(self, error: Exception) -> None:
        self._failed_until = self._clock() + PAUSE
        if not self._failing:
            self._failing = True
            reason = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
            LOG.error("%s (%s) fails: %s; %s", self._use, self._spec.url, reason, self._meanwhile)

    def _refused(self, error: ResponseError) -> None:
        code = str(error).partition(" ")[0]
        reason = code if code.isupper() else type(error).__name__
        if reason not in self._refusals:
            self._refusals.add(reason)
            LOG.error("%s (%s) refuses a command: %s; %s", self._use, self._spec.url, reason, self._meanwhile)


async def probe(spec: StoreSpec, seconds: float) -> str:
    """Write a value that lasts a second. Return the reason why the server cannot be used; empty if it can be used."""
    password = spec.password.get_secret_value() if spec.password is not None else None
    redis = Redis.from_url(spec.url, protocol=2, password=password, retry=Retry(NoBackoff(), 0))
    try:
        async with asyncio.timeout(seconds):
            await redis.set(PROBE_KEY, "", px=1000)
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except (RedisError, OSError) as error:
        return str(error).rstrip(".")
    finally:
        await redis.aclose()
    return ""
