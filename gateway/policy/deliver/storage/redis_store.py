"""A store of complete answers on a Redis or Valkey server, which several gateways can share.

If the server fails, a look-up finds nothing, and the call continues. A call waits at most ``store.timeout`` for the
answer, and at most ``LOOK_UP_SECONDS`` longer if it has to wait for a free connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from gateway.backend.redis_server import RedisServer, StoreUnavailable
from gateway.config.snapshot import StoreSpec
from gateway.core.events import Event
from gateway.policy.deliver.storage.cache_store import (
    LOOK_UP_SECONDS,
    MAX_WAITING,
    CacheStore,
    StoredAnswer,
    StoreFailed,
)
from gateway.wire.stored_events import dump_json, load_events, named_events

LOG = logging.getLogger("gateway.store")

PREFIX = "meta-gateway:cache:"
MAX_VALUE = 1024 * 1024
"""The maximum size of a stored answer in bytes. One command must end within ``store.timeout``."""
LARGE = 64 * 1024
"""The minimum size in bytes of an answer that is parsed in a thread, so that the event loop is not blocked."""


class RedisStore(CacheStore):
    """A store on one server. The server removes an answer after its ``ttl``, or when the server's memory is full.

    A stored value contains the time of the answer, a space, and the events as JSON.
    """

    def __init__(self, spec: StoreSpec) -> None:
        self._server = RedisServer(spec, "the store of the cache", "calls go to their targets")
        self._seconds = LOOK_UP_SECONDS + spec.timeout
        """Limits a look-up, most of all its wait for a connection. This wait does not count as a failure."""
        self._writing: set[asyncio.Task[None]] = set()

    async def get(self, key: bytes) -> StoredAnswer | None:
        """Return the answer for a key, or None. See ``CacheStore.get``."""
        try:
            async with asyncio.timeout(self._seconds):
                value = await self._server.run(lambda: self._server.redis.get(PREFIX + key.hex()))
            if value is None:
                return None
            created, _, data = value.partition(b" ")
            events = load_events(data) if len(data) < LARGE else await asyncio.to_thread(load_events, data)
            return StoredAnswer(float(created), events)
        except (StoreUnavailable, TimeoutError, ValueError) as error:
            raise StoreFailed from error

    def put(self, key: bytes, created: float, events: Sequence[Event], ttl: float) -> None:
        """Store an answer in the background. See ``CacheStore.put``."""
        if len(self._writing) < MAX_WAITING:
            task = asyncio.get_running_loop().create_task(self._put(key, created, events, ttl))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def aclose(self) -> None:
        """Write the waiting answers, and close the connections. See ``CacheStore.aclose``."""
        await asyncio.gather(*self._writing)
        await self._server.aclose()

    async def _put(self, key: bytes, created: float, events: Sequence[Event], ttl: float) -> None:
        try:
            data = (await asyncio.to_thread(dump_json, named_events(events))).encode("ascii")
            if len(data) <= MAX_VALUE:
                value = b"%.6f %b" % (created, data)
                milliseconds = max(1, int(ttl * 1000))
                await self._server.run(lambda: self._server.redis.set(PREFIX + key.hex(), value, px=milliseconds))
        except StoreUnavailable:
            pass
        except Exception as error:  # a value that cannot be written
            LOG.warning("an answer could not be stored in the cache: %s", type(error).__name__)
