"""Sends a call to another model if the first model fails. The call is prepared again, with the other model's template.

All models share the attempts, the total timeout and the retry budget of the requested model. Each fallback model that
can still be tried reserves one attempt; the models before it use the others.

A fallback is possible only before the answer has begun, and only for conversations. A raw prompt was written for one
model, and the vectors of two embedding models cannot be compared (``docs/spec/reliability.md`` 4.5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from gateway.calls.prepare import Prepared, prepare
from gateway.calls.response import ResponseStream
from gateway.calls.route import Route
from gateway.calls.run import CallRun
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Call
from gateway.core.errors import (
    DeadlineExceeded,
    RequestError,
    UpstreamError,
    UpstreamIgnoredParameter,
    UpstreamTooLarge,
    drop_tracebacks,
)
from gateway.core.prompt import Notice

FINAL = (DeadlineExceeded, UpstreamIgnoredParameter, UpstreamTooLarge)
"""Failures that cause no fallback: the call has no time left, or the request itself is the reason."""


class FallbackRun(CallRun):
    """A ``CallRun`` that tries the call's fallback models in order, if a model fails.

    After entering, ``route`` and ``prepared`` are the route and the prepared call of the model that answers.
    """

    __slots__ = ("_call",)

    def __init__(self, route: Route, prepared: Prepared, timeline: CallTimeline, call: Call) -> None:
        super().__init__(route, prepared, timeline)
        self._call = call

    async def __aenter__(self) -> ResponseStream:
        delivery, fallbacks = self.route.spec.policy.delivery, self.route.fallbacks
        deadline = asyncio.get_running_loop().time() + delivery.timeout.total
        log, names = self.prepared.exchange.attempts, self.route.fallbacks_of(self._call.caller)
        notices = self._call.notices
        left = delivery.retry.attempts
        while True:
            exchange = replace(
                self.prepared.exchange,
                attempts=log,
                deadline=deadline,
                total=delivery.timeout.total,
                max_attempts=max(left - len(names), 1),
            )
            self.prepared = replace(self.prepared, exchange=exchange)
            try:
                return await super().__aenter__()
            except UpstreamError as error:
                notices = (*notices, Notice("fallback", f"{self.route.spec.name}={error.code}"))
                left = delivery.retry.attempts - (log.count - log.stale)
                following = None
                if left > 0 and not isinstance(error, FINAL):
                    following = await self._next_model(fallbacks, names, replace(self._call, notices=notices), deadline)
                if following is None:
                    raise
                drop_tracebacks(error)
                self.route, self.prepared = following

    async def _next_model(
        self, fallbacks: Mapping[str, Route], names: list[str], call: Call, deadline: float
    ) -> tuple[Route, Prepared] | None:
        """Prepare the call for the first of ``names`` that can take the conversation, and remove the names up to it.

        None if there is no such model, or if the call has no time left.
        """
        while names and asyncio.get_running_loop().time() < deadline:
            route = fallbacks[names.pop(0)]
            with suppress(RequestError, TimeoutError):  # the model cannot take this conversation, or the time is over
                async with asyncio.timeout_at(deadline):
                    return route, await prepare(route, replace(call, model=route.spec.name))
        return None
