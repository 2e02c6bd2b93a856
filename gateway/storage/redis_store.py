"""A store of complete answers on a Redis or Valkey server, which several gateways can share.

If the server fails, a look-up finds nothing, and the call continues. A call waits at most ``store.timeout`` for each
command, and at most ``LOOK_UP_SECONDS`` longer if it has to wait for a free connection.
"""

from __future__ import annotations

import asyncio
import logging
import math

from gateway.config.snapshot import StoreSpec
from gateway.storage.cache_store import (
    LOOK_UP_SECONDS,
    MAX_WAITING_ANSWERS,
    CacheStore,
    StoredAnswer,
    StoreFailed,
    read_answer,
)
from gateway.storage.redis_server import RedisServer, StoreUnavailable
from gateway.wire.json import dump_json
from gateway.wire.stored_events import named_events

LOG = logging.getLogger("gateway.store")

CACHE_PREFIX = "meta-gateway:cache:"
MAX_VALUE = 1024 * 1024
"""The maximum size of a stored answer in bytes. One command must end within ``store.timeout``."""
LARGE = 64 * 1024
"""The minimum size in bytes of an answer that is parsed in a thread, so that the event loop is not blocked."""
TIME_BYTES = 32
"""The maximum size of the time before the answer, with the space."""

SET = f"""
local created = tonumber(string.match(redis.call('GETRANGE', KEYS[1], 0, {TIME_BYTES - 1}), '^%S+'))
if created and created >= tonumber(ARGV[1]) and created < math.huge then return end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
"""
"""Stores a value, unless the key has an answer that was made at the time ``ARGV[1]`` or later."""


class RedisStore(CacheStore):
    """A store on one server. The server removes an answer when its time is over, or when the server's memory is full.

    A stored value contains the time of the answer, a space, and the events as JSON.
    """

    def __init__(self, spec: StoreSpec) -> None:
        self._server = RedisServer(spec, "the store of the cache", "calls go to their targets")
        self._set = self._server.redis.register_script(SET)
        self._seconds = LOOK_UP_SECONDS + spec.timeout
        """Limits a look-up and the wait for a write, most of all for a connection. This is not a failure."""
        self._writing: set[asyncio.Task[None]] = set()

    async def get(self, key: bytes) -> StoredAnswer | None:
        """Return the answer for a key, or None. See ``CacheStore.get``."""
        try:
            async with asyncio.timeout(self._seconds):
                # A longer value is read in part, and is then not valid.
                longest = TIME_BYTES + MAX_VALUE
                value = await self._server.run(
                    lambda: self._server.redis.getrange(CACHE_PREFIX + key.hex(), 0, longest)
                )
        except (StoreUnavailable, TimeoutError) as error:
            raise StoreFailed from error
        if not value:
            return None
        created, _, data = value.partition(b" ")
        return read_answer(created, data) if len(data) < LARGE else await asyncio.to_thread(read_answer, created, data)

    async def put(
        self, key: bytes, answer: StoredAnswer, ttl: float, kept: float = 0.0, *, replace: bool = False
    ) -> None:
        """Store an answer. See ``CacheStore.put``."""
        if len(self._writing) < MAX_WAITING_ANSWERS:
            oldest = math.inf if replace else answer.created - ttl
            task = asyncio.get_running_loop().create_task(self._put(key, answer, oldest, max(ttl, kept)))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)
            await asyncio.wait([task], timeout=self._seconds)

    def resize(self, max_size: int) -> None:
        """Change nothing: the server has its own limit."""

    async def aclose(self) -> None:
        """Write the waiting answers, and close the connections. See ``CacheStore.aclose``."""
        await asyncio.gather(*self._writing)
        await self._server.aclose()

    async def _put(self, key: bytes, answer: StoredAnswer, oldest: float, kept: float) -> None:
        try:
            data = (await asyncio.to_thread(dump_json, named_events(answer.events))).encode("ascii")
            if len(data) <= MAX_VALUE:
                values: list[bytes | float] = [oldest, b"%.6f %b" % (answer.created, data), max(1, int(kept * 1000))]
                await self._server.run(lambda: self._set(keys=[CACHE_PREFIX + key.hex()], args=values))
        except StoreUnavailable:
            pass
        except Exception as error:  # a value that cannot be written
            LOG.warning("an answer could not be stored in the cache: %s", type(error).__name__)
