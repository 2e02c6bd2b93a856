"""Complete answers on a Redis or Valkey server, for all gateways that share it.

A server that fails costs hits, never calls, and no call more than ``store.timeout``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from gateway.backend.redis_server import RedisServer, StoreUnavailable
from gateway.config.snapshot import StoreSpec
from gateway.core.events import Event
from gateway.policy.deliver.storage.cache_store import MAX_WAITING, CacheStore, StoredAnswer, StoreFailed
from gateway.wire.stored_events import dump_json, load_events, named_events

LOG = logging.getLogger("gateway.store")

PREFIX = "meta-gateway:cache:"
MAX_VALUE = 1024 * 1024
"""The most bytes of an answer that is kept, because one command must end within ``store.timeout``."""
LARGE = 64 * 1024
"""Bytes of an answer that a thread reads, because the event loop would stop for milliseconds."""


class RedisStore(CacheStore):
    """Answers that the server removes after their ``ttl``, or when its own memory limit is reached.

    A value is the time of the answer, a space, and its events.
    """

    def __init__(self, spec: StoreSpec) -> None:
        self._server = RedisServer(spec, "the store of the cache", "calls go to their targets")
        self._writing: set[asyncio.Task[None]] = set()

    async def get(self, key: bytes) -> StoredAnswer | None:
        """See ``CacheStore``."""
        try:
            value = await self._server.run(lambda: self._server.redis.get(PREFIX + key.hex()))
            if value is None:
                return None
            created, _, data = value.partition(b" ")
            events = load_events(data) if len(data) < LARGE else await asyncio.to_thread(load_events, data)
            return StoredAnswer(float(created), events)
        except (StoreUnavailable, ValueError) as error:
            raise StoreFailed from error

    def put(self, key: bytes, created: float, events: Sequence[Event], ttl: float) -> None:
        """See ``CacheStore``."""
        if len(self._writing) < MAX_WAITING:
            task = asyncio.get_running_loop().create_task(self._put(key, created, events, ttl))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def aclose(self) -> None:
        """See ``CacheStore``."""
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
            LOG.warning("an answer is not kept: %s", type(error).__name__)
