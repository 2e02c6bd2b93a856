"""Coalescing: equal requests at the same time make one call.

A task makes the call and keeps its events. The first request reads them as they arrive, and the others get the complete
answer. So a client that reads slowly or leaves delays no other request. If the call fails, each of the others makes a
call of its own. Only requests whose answers are deterministic are coalesced.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from types import TracebackType

from gateway.config.snapshot import ModelSpec
from gateway.core.errors import GatewayError
from gateway.core.exchange import Backend, Events, Exchange
from gateway.policy.deliver.cache import KeptEvents, cache_key, replay, target_identity
from gateway.policy.deliver.layer import Layer
from metatemplate.values.events import Begun, Event


class Coalescing(Layer):
    """A backend that opens ``inner`` once for equal requests at the same time."""

    def __init__(self, inner: Backend, model: ModelSpec, observe: Callable[[str], None] = lambda result: None) -> None:
        """``observe``: called with ``hit`` for each request that gets the answer of another one."""
        super().__init__(inner)
        self._targets = target_identity(model)
        self._total = model.policy.delivery.timeout.total
        self._observe = observe
        self._calls: dict[bytes, _SharedCall] = {}

    def open(self, exchange: Exchange) -> AbstractAsyncContextManager[Events]:
        """Open the exchange, or wait for the answer to an equal request. See ``Backend.open``."""
        params = exchange.params
        if params.get("temperature") != 0 and params.get("seed") is None:
            return self._inner.open(exchange)
        return self._open(exchange)

    @asynccontextmanager
    async def _open(self, exchange: Exchange) -> AsyncIterator[Events]:
        key = cache_key(exchange, self._targets)
        call = self._calls.get(key)
        if call is None or call.is_abandoned:
            call = self._calls[key] = _SharedCall(self._inner, exchange)
            call.task.add_done_callback(lambda task: self._remove(key, task))
            opened = call.read_live()
        else:
            opened = self._follow(exchange, call)
        async with opened as events:
            yield events

    def _remove(self, key: bytes, task: asyncio.Task[None]) -> None:
        if (call := self._calls.get(key)) is not None and call.task is task:
            del self._calls[key]

    @asynccontextmanager
    async def _follow(self, exchange: Exchange, call: _SharedCall) -> AsyncIterator[Events]:
        """Wait for the answer to the first request. If there is none, open ``inner``."""
        now = asyncio.get_running_loop().time()
        end = now + self._total if exchange.deadline is None else exchange.deadline
        async with call:
            await asyncio.wait([call.answer], timeout=end - now)
            if call.answer.done() and (events := call.answer.result()):
                self._observe("hit")
                begun = next(event for event in events if isinstance(event, Begun))
                noted = replace(begun, notices=(*begun.notices, f"coalesced: {call.exchange.request_id}"))
                events = [noted if event is begun else event for event in events]
                yield replay(exchange, events, call.exchange.attempts.cache_age)
                call.accepted.set()
                return
        async with self._inner.open(replace(exchange, deadline=end)) as own:
            yield own


class _SharedCall:
    """One call whose events several requests read. Each request enters the context while it waits or reads.

    When the last request leaves and none has accepted the answer, the call is closed as if this request had made it.
    """

    def __init__(self, inner: Backend, exchange: Exchange) -> None:
        self.exchange = exchange
        """The first request."""
        self.answer: asyncio.Future[Sequence[Event]] = asyncio.get_running_loop().create_future()
        """All events of the answer. Empty if the answer is not complete."""
        self.accepted = asyncio.Event()
        """Set when a request has accepted the answer, which the cache may then store."""
        self.is_abandoned = False
        """True: all requests have left before one accepted the answer."""
        self._readers = 0
        self._error: BaseException | None = None
        """The error with which the last request left."""
        self._ended = False
        """True: the call has no further events."""
        self._unread: asyncio.Queue[Sequence[Event] | Exception] = asyncio.Queue()
        """What the first request has not read yet: an empty batch when the call is open, the events, and an error."""
        self.task = asyncio.create_task(self._run(inner))

    async def _run(self, inner: Backend) -> None:
        try:
            async with inner.open(self.exchange) as events:
                try:
                    await self._read(KeptEvents(events))
                    await self.accepted.wait()
                except asyncio.CancelledError:
                    if isinstance(self._error, GatewayError):
                        raise self._error from None
                    if self._error is not None or not self.is_abandoned:
                        raise
                    self.task.uncancel()
        except Exception as error:  # raised again in the first request
            self._ended = True
            self._unread.put_nowait(error)
        finally:
            self._settle(())

    async def _read(self, kept: KeptEvents) -> None:
        """Read all events. If they are too many to be kept, read only as fast as the first request."""
        self._unread.put_nowait(())
        while not self._ended:
            batch = await kept.next_batch()
            self._ended = kept.ended
            self._unread.put_nowait(batch)
            if kept.is_too_large:
                self._settle(())
                await self._unread.join()
        self._settle(kept.answer(self.exchange))

    def _settle(self, answer: Sequence[Event]) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    async def __aenter__(self) -> None:
        self._readers += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._readers -= 1
        if not self._readers and not self.accepted.is_set():
            self.is_abandoned, self._error = True, error
            self.task.cancel()
        if self.is_abandoned or self.accepted.is_set():
            await asyncio.wait([self.task])

    @asynccontextmanager
    async def read_live(self) -> AsyncIterator[Events]:
        """Yield the events as they arrive, for the first request."""
        async with self:
            await self.next_batch()
            yield self
            if self.exhausted:
                self.accepted.set()
        if self._ended and not self.exhausted:  # the call failed while it was closed
            await self.next_batch()

    @property
    def exhausted(self) -> bool:
        """Return whether all events have been read. See ``Events.exhausted``."""
        return self._ended and self._unread.empty()

    async def next_batch(self) -> Sequence[Event]:
        """Return the next events. See ``Events.next_batch``."""
        if self.exhausted:
            return ()
        batch = await self._unread.get()
        self._unread.task_done()
        if isinstance(batch, Exception):
            raise batch
        return batch
