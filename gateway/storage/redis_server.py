"""Connections to a Redis or Valkey server. Imported if ``store.url`` is configured.

A failed or slow server delays a command by at most the configured timeout. After two failures in sequence the server is
failing: it gets one command per second until it answers. Otherwise a server that hangs would slow down all calls.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.exceptions import RedisError, ResponseError

from gateway.config.snapshot import StoreSpec

LOG = logging.getLogger("gateway.store")

CONNECTIONS = 8
"""The maximum number of connections to the server. Further commands wait for a free connection. This wait does
not count as a failure of the server.

More connections would not be faster, and opening many at once would take longer than the timeout."""
PROBE_KEY = "meta-gateway:probe"
PAUSE = 1.0
"""Seconds between two commands to a failing server."""
TIMEOUT_PARTS = 20
"""The timeout is measured in this number of parts, after each of which the event loop reads what has arrived.

A part in which the event loop was blocked counts as no longer than the others. Otherwise a client could use up the
timeout with large requests, although the server has answered."""


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
        self.redis = _connect(spec)
        self.is_failing = False
        """Whether the server has failed twice in sequence, and has not answered since."""
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._next_command = 0.0
        """The clock time before which a failing server gets no command."""
        self._failed_at: float | None = None
        """The clock time of the first failure since the last answer."""
        self._refusals: set[str] = set()
        """The errors with which the server has refused a command. Each is logged once."""

    async def run(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """Run a command of ``redis`` and return the answer. Raises ``StoreUnavailable``.

        The timeout begins when one of the connections is free, and includes the time to open it.
        """
        async with self._slots:
            begin = self._clock()
            if begin < self._next_command:
                raise StoreUnavailable
            if self.is_failing:
                self._next_command = begin + PAUSE
            try:
                answer = await self._answer(command)
            except ResponseError as error:  # the server works, so it is asked again at once
                self._refused(error)
                raise StoreUnavailable from error
            except (RedisError, OSError, TimeoutError) as error:
                self._failed(error, begin)
                raise StoreUnavailable from error
        self._failed_at = None
        if self.is_failing:
            self.is_failing, self._next_command = False, 0.0
            LOG.info("%s answers again", self._use)
        return answer

    async def _answer(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """Return the answer of a command. Raises ``TimeoutError``, or the error of the command."""
        task = asyncio.ensure_future(command())
        try:
            for _ in range(TIMEOUT_PARTS):
                await asyncio.wait([task], timeout=self._spec.timeout / TIMEOUT_PARTS)
                if task.done():
                    return task.result()
            raise TimeoutError
        finally:
            if task.cancel():
                await asyncio.gather(task, return_exceptions=True)  # closes the connection, and frees its place

    async def aclose(self) -> None:
        """Close the connections."""
        await self.redis.aclose()

    def _failed(self, error: Exception, begin: float) -> None:
        """Note the failure of a command. ``begin``: the clock time at which the command was sent."""
        now = self._clock()
        if self._failed_at is None:
            self._failed_at = now
        elif begin >= self._failed_at:  # not sent beside the first command that failed, but after it
            self._next_command = now + PAUSE
            if not self.is_failing:
                self.is_failing = True
                reason = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
                LOG.error("%s (%s) fails: %s; %s", self._use, self._spec.url, reason, self._meanwhile)

    def _refused(self, error: ResponseError) -> None:
        code = str(error).partition(" ")[0]
        reason = code if code.isupper() else type(error).__name__
        if reason not in self._refusals:
            self._refusals.add(reason)
            LOG.error("%s (%s) refuses a command: %s; %s", self._use, self._spec.url, reason, self._meanwhile)


def _connect(spec: StoreSpec) -> Redis:
    """Return a client that never retries and has no timeout. Its caller limits the time."""
    pool = ConnectionPool.from_url(
        spec.url,
        max_connections=CONNECTIONS,
        protocol=2,  # needs one round trip less to connect
        password=spec.password.get_secret_value() if spec.password is not None else None,
        socket_connect_timeout=None,
        socket_timeout=None,
    )
    return Redis.from_pool(pool)


async def probe(spec: StoreSpec, seconds: float) -> str:
    """Write a value that lasts a second. Return a phrase about why the server cannot be used; empty if it can."""
    redis = _connect(spec)
    try:
        async with asyncio.timeout(seconds):
            await redis.set(PROBE_KEY, "", px=1000)
    except TimeoutError:
        return f"gives no answer within {seconds:g} s; check store.url, and that the server runs"
    except (RedisError, OSError) as error:
        return _fault(error)
    finally:
        await redis.aclose()
    return ""


def _fault(error: Exception) -> str:
    """Return what an error says about the server, and what to check."""
    cause = error if isinstance(error, OSError) else error.__context__
    if not isinstance(cause, OSError):
        return f"refuses a command: {str(error).rstrip('.')}; check store.password, and that the server can be written"
    has_text = isinstance(cause, (socket.gaierror, ssl.SSLError)) or not cause.errno
    reason = str(cause.args[-1]) if has_text else os.strerror(cause.errno or 0).lower()
    return f"does not accept connections: {reason}; check store.url, and that the server runs"
