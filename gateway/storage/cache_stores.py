"""The cache stores of one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config.snapshot import CacheSpec, StoreSpec

if TYPE_CHECKING:
    from gateway.storage.cache_store import CacheStore


class CacheStores:
    """The cache stores of one process. They stay open when the configuration is reloaded."""

    def __init__(self) -> None:
        self._stores: dict[Path | StoreSpec | None, CacheStore] = {}

    def get(self, spec: CacheSpec, server: StoreSpec) -> CacheStore:
        """Return the store of a configuration. If only the size changes, the store and its answers stay the same."""
        place = server if spec.shared else spec.path
        if place not in self._stores:
            self._stores[place] = _open(spec, server)
        return self._stores[place]

    def activate(self, spec: CacheSpec) -> None:
        """Apply the size of the configuration that becomes active."""
        if (store := self._stores.get(spec.path)) is None:
            return
        from gateway.storage.cache_store import SqliteStore

        if isinstance(store, SqliteStore):
            store.max_size = spec.max_size

    async def aclose(self) -> None:
        """Close all stores."""
        for store in self._stores.values():
            await store.aclose()


def _open(spec: CacheSpec, server: StoreSpec) -> CacheStore:
    if spec.shared:
        from gateway.storage.redis_store import RedisStore

        return RedisStore(server)
    from gateway.storage.cache_store import SqliteStore

    return SqliteStore(spec.path, spec.max_size)
