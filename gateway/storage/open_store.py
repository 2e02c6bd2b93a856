"""Opens the store of the cache: in memory, in a file or on a server."""

from __future__ import annotations

from pathlib import Path

from gateway.config.snapshot import CacheSpec, StoreSpec
from gateway.storage.cache_store import CacheStore, SqliteStore


def cache_store(spec: CacheSpec, server: StoreSpec, stores: dict[Path | StoreSpec | None, CacheStore]) -> CacheStore:
    """Return the store of a configuration. If only the size changes, the store and its answers stay the same.

    ``stores``: those of earlier configurations, to which the store is added.
    """
    place = server if spec.shared else spec.path
    if place not in stores and spec.shared:
        from gateway.storage.redis_store import RedisStore

        stores[place] = RedisStore(server)
    elif place not in stores:
        stores[place] = SqliteStore(spec.path, spec.max_size)
    return stores[place]
