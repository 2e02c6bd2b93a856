"""Cache: a complete answer is stored, and sent again for exactly the same request.

The cache key consists of everything that the target receives, the target itself, the client's key and the request's
repeat index. A request without a temperature and a request with ``temperature: 0`` have different cache keys. Requests
that are only similar never share an answer.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, replace

from gateway.config.snapshot import CachePolicy, ModelSpec
from gateway.core.exchange import Backend, Events, Exchange, is_answer
from gateway.policy.deliver.layer import Layer
from gateway.storage.cache_store import UNUSABLE, CacheStore, StoredAnswer, StoreFailed
from gateway.wire.json import dump_json
from gateway.wire.request_fields import HINTS
from metatemplate.values.events import Begun, Delta, Event, delta_size

MAX_ANSWER = 4 * 1024 * 1024
"""The maximum size of an answer that is stored, in characters as counted by ``delta_size``."""

NOT_KEYED = {"request_id", "caller", "deadline", "total", "max_attempts", "attempts", "rendered"}
KEYED = tuple(sorted({one.name for one in fields(Exchange)} - NOT_KEYED))
"""The fields of an exchange that are in the cache key. Fields that cannot change an answer are left out."""
HINT_NOTICES = frozenset([f"omitted_parameter: {name}" for name in HINTS])
UNKEYED = HINTS | {"include_obfuscation"}
"""Keys of ``params`` and ``stream_options`` that cannot change an answer."""

Observe = Callable[[str], None]
"""Called once for each request with ``hit``, ``miss``, ``bypass`` (not looked up) or ``error`` (the store failed)."""


class Cache(Layer):
    """A backend that answers from ``store`` if possible. Otherwise calls ``inner`` and stores the answer."""

    def __init__(
        self,
        inner: Backend,
        store: CacheStore,
        model: ModelSpec,
        observe: Observe = lambda result: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``now``: returns the seconds since the epoch. This time is also valid in other processes."""
        super().__init__(inner)
        self._store = store
        self._policy: CachePolicy = model.policy.cache
        self._targets = target_identity(model)
        self._labels = {"", *[target.label for target in model.targets]}
        self._observe = observe
        self._now = now

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        """Send the stored answer, or open the backend and store the answer. See ``Backend.open``.

        The result of the look-up is written to ``exchange.attempts``.
        """
        key = cache_key(exchange, self._targets)
        result, found = await self._look_up(key, exchange)
        self._observe(result)
        if result == "hit" and found is not None:
            yield replay(exchange, found.events, max(0.0, self._now() - found.created))
            return
        exchange.attempts.looked_up(result, 0.0)
        async with self._inner.open(exchange) as events:
            kept = KeptEvents(events)
            yield events if self._policy.mode == "read_only" else kept
        # The caller has accepted the answer, and sends its end to the client after the answer is stored.
        if answer := kept.answer(exchange):
            again = result == "bypass" or found is UNUSABLE
            await self._store.put(key, StoredAnswer(self._now(), answer), self._policy.ttl, replace=again)

    async def _look_up(self, key: bytes, exchange: Exchange) -> tuple[str, StoredAnswer | None]:
        """Return the result of the look-up, and the stored answer. None if the store has no answer or an old one."""
        if self._policy.mode == "write_only":
            return "bypass", None
        try:
            found = await self._store.get(key)
        except StoreFailed:
            return "error", None
        if found is None:
            return "miss", None
        age, ttl = self._now() - found.created, self._policy.ttl
        targets = {event.target for event in found.events if isinstance(event, Begun)}
        if age < -ttl or not targets <= self._labels or not is_answer(found.events, exchange):
            return "miss", UNUSABLE
        return ("miss", None) if age > ttl else ("hit", found)


def target_identity(model: ModelSpec) -> list[object]:
    """Return all properties of a model's targets that can change an answer, in a fixed order."""
    rows = [
        (
            one.speaks,
            one.engine,
            one.url,
            str(one.local_path or ""),
            one.model,
            one.adds_bos,
            sorted(one.options.items()),
        )
        for one in model.targets
    ]
    return [model.name, sorted(rows, key=repr)]


def cache_key(exchange: Exchange, targets: list[object]) -> bytes:
    """Return the SHA-256 of the request, the targets (``target_identity``), the client's key and the repeat index."""
    request = [targets, *[_keyed(getattr(exchange, name)) for name in KEYED], exchange.caller.key]
    return hashlib.sha256(dump_json(request).encode("ascii")).digest()


def _keyed(value: object) -> object:
    """Return the fields of a mapping without hints, sorted by name. Nested mappings are unchanged: their order can
    change a prompt."""
    if not isinstance(value, Mapping):
        return value
    return sorted([(name, one) for name, one in value.items() if name not in UNKEYED])


def replay(exchange: Exchange, events: Sequence[Event], age: float) -> StoredEvents:
    """Return the events of a complete answer, and note a hit. ``age``: the age of the answer in seconds."""
    events = [_without_hint_notices(event) for event in events]
    exchange.attempts.looked_up("hit", age)
    target = next((event.target for event in events if isinstance(event, Begun)), "")
    exchange.attempts.target = exchange.attempts.target or target
    return StoredEvents(events)


def _without_hint_notices(event: Event) -> Event:
    """Return the event without notices about hints, which another request may have had."""
    if not isinstance(event, Begun) or HINT_NOTICES.isdisjoint(event.notices):
        return event
    return replace(event, notices=tuple([notice for notice in event.notices if notice not in HINT_NOTICES]))


class StoredEvents:
    """The events of a stored answer, in one batch."""

    __slots__ = ("_batch",)

    def __init__(self, events: Sequence[Event]) -> None:
        self._batch = events

    @property
    def exhausted(self) -> bool:
        """Return whether the batch has been returned. See ``Events.exhausted``."""
        return not self._batch

    async def next_batch(self) -> Sequence[Event]:
        """Return all events on the first call, and nothing afterwards. See ``Events.next_batch``."""
        batch, self._batch = self._batch, ()
        return batch


class KeptEvents:
    """Passes on the events of ``inner`` unchanged, and keeps them."""

    __slots__ = ("_inner", "_kept", "_room", "ended")

    def __init__(self, inner: Events) -> None:
        self._inner = inner
        self._kept: list[Event] = []
        self._room = MAX_ANSWER
        self.ended = False
        """True: ``inner`` has returned its last event."""

    @property
    def is_too_large(self) -> bool:
        """Return whether the answer is larger than ``MAX_ANSWER``. Then no events are kept."""
        return self._room < 0

    @property
    def exhausted(self) -> bool:
        """Return whether ``inner`` is exhausted. See ``Events.exhausted``."""
        return self._inner.exhausted

    async def next_batch(self) -> Sequence[Event]:
        """Return the next events of ``inner``, and keep them. See ``Events.next_batch``."""
        batch = await self._inner.next_batch()
        self._room -= sum([delta_size(event) for event in batch if isinstance(event, Delta)])
        self._kept += batch
        if self.is_too_large:
            self._kept = []
        self.ended = not batch or self._inner.exhausted
        return batch

    def answer(self, exchange: Exchange) -> Sequence[Event]:
        """Return the kept events if they have ended and are a complete answer to the request. Otherwise none."""
        return self._kept if self.ended and is_answer(self._kept, exchange) else ()
