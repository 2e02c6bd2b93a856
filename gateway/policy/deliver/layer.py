"""Base classes of a delivery layer: ``Layer`` wraps a backend, and ``LayerStream`` wraps an event stream."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from gateway.core.exchange import Backend, Events
from metatemplate.values.events import Event


class Layer:
    """A backend around the backend ``inner``. A subclass defines ``open``."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner


class LayerStream:
    """An open exchange that passes on the events of another exchange unchanged. A subclass overrides methods.

    ``next_batch`` receives every event. A layer that neither changes nor needs the text may define the attribute
    ``text_source``, so that plain text can be forwarded past the layer. See ``core.text_splice.text_source``.
    """

    __slots__ = ("_events", "_inner")

    def __init__(self, inner: AbstractAsyncContextManager[Events]) -> None:
        self._inner = inner
        self._events: Events

    async def __aenter__(self) -> Events:
        self._events = await self._inner.__aenter__()
        return self

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, bool | None]:
        return self._inner.__aexit__(kind, error, trace)

    @property
    def exhausted(self) -> bool:
        """Return whether no events are left. See ``Events.exhausted``."""
        return self._events.exhausted

    def next_batch(self) -> Coroutine[Any, Any, Sequence[Event]]:
        """Return the next events. See ``Events.next_batch``."""
        return self._events.next_batch()
