"""Reading the response of a backend: to its end, in part, or cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from gateway.config.snapshot import BreakerPolicy
from gateway.core.errors import GatewayError
from gateway.core.exchange import Backend, Exchange
from gateway.policy.deliver.targets.circuit_breaker import CircuitBreaker
from gateway.policy.deliver.targets.load_balancer import Replica
from gateway.telemetry.attempts import AttemptObserver
from gateway.telemetry.metrics import Metrics
from metatemplate.values.events import Begun, Delta, Event, Finish, Usage
from tests.support.events import each_event
from tests.support.virtual_clock import run as run_virtual

OBSERVER = AttemptObserver("m", {}, Metrics())
"""For layers whose attempts a test does not read."""


@dataclass
class Response:
    """The events of one exchange, and the error that ended it, if any."""

    events: list[Event] = field(default_factory=list)
    error: GatewayError | None = None
    seconds: float = 0.0
    log: tuple[str, int, int] = ("", 0, 0)
    """The last target, the number of attempts, and how many of them were retries."""

    @property
    def attempts(self) -> int:
        return self.log[1]

    @property
    def code(self) -> str | None:
        return self.error.code if self.error else None

    @property
    def texts(self) -> dict[int, str]:
        """Index → text, in order of first appearance."""
        texts: dict[int, str] = {}
        for event in self.events:
            if isinstance(event, Delta):
                texts[event.index] = texts.get(event.index, "") + event.text
        return texts

    @property
    def finishes(self) -> list[tuple[int, str]]:
        return [(event.index, event.reason) for event in self.events if isinstance(event, Finish)]

    @property
    def begun(self) -> list[Begun]:
        return [event for event in self.events if isinstance(event, Begun)]

    @property
    def usages(self) -> list[Usage]:
        return [event for event in self.events if isinstance(event, Usage)]


def replica(label: str, backend: Backend, weight: int = 1) -> Replica:
    """A target with a closed circuit breaker."""
    return Replica(label=label, backend=backend, breaker=CircuitBreaker(BreakerPolicy(), label), weight=weight)


def exchange(*prompts: str, **changes: Any) -> Exchange:
    """A streaming completions exchange."""
    given = {"prompts": prompts or ("hi",), "prompt_is_list": len(prompts) > 1, "stream": True, **changes}
    return Exchange(endpoint="completions", request_id="req-1", **given)


def read_response(backend: Backend, request: Exchange | None = None) -> Response:
    """Open one exchange and read its events to the end, on a virtual clock."""
    return run_virtual(read_response_async(backend, request))


async def read_response_async(backend: Backend, request: Exchange | None = None) -> Response:
    """As ``read_response``, in a running event loop."""
    response, request = Response(), request or exchange()
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        async with backend.open(request) as events:
            async for event in each_event(events):
                response.events.append(event)
    except GatewayError as error:
        response.error = error
    response.seconds = loop.time() - start
    response.log = (request.attempts.target, request.attempts.count, request.attempts.retries)
    return response


def leave_after(backend: Backend, count: int, request: Exchange | None = None) -> None:
    """Read ``count`` events, then leave the context."""

    async def run() -> None:
        async with backend.open(request or exchange()) as events:
            await _take(each_event(events), count)

    run_virtual(run())


def cancel_after(backend: Backend, seconds: float, request: Exchange | None = None) -> None:
    """Cancel the task that reads the response, as a client's disconnect does."""

    async def run() -> None:
        task = asyncio.create_task(read_response_async(backend, request))
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    run_virtual(run())


async def _take(events: AsyncIterator[Event], count: int) -> None:
    for _ in range(count):
        await anext(events)
