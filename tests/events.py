"""Events one by one, for tests that do not look at batches."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from gateway.core.events import Event
from gateway.core.exchange import Events


async def singly(events: Events) -> AsyncGenerator[Event, None]:
    """Every event of an answer; an answer that is over, or says so, stays over."""
    while batch := await events.next_batch():
        over = events.exhausted
        for event in batch:
            yield event
        if over:
            break
    assert not await events.next_batch()
