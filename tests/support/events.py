"""Events one by one, for tests that do not check batches."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from gateway.core.exchange import Events
from metatemplate.values.events import Event


async def each_event(events: Events) -> AsyncGenerator[Event, None]:
    """Yield every event of an answer; check that ``next_batch`` returns nothing after its end."""
    while batch := await events.next_batch():
        exhausted = events.exhausted
        for event in batch:
            yield event
        if exhausted:
            break
    assert not await events.next_batch()
