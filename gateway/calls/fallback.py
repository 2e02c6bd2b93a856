"""Sends a call to another model if the first model fails. The call is prepared again, with the other model's template.

All models share the attempts, the total timeout and the retry budget of the requested model. Each fallback model that
can still be tried reserves one attempt; the models before it use the others.

A fallback is possible only before anything was sent to the client, and only for conversations. A dialogue of several
turns starts again with its first turn. A raw prompt was written for one model, scores of two models cannot be compared,
and neither can the vectors of two embedding models (``docs/spec/reliability.md`` 4.5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from gateway.calls.answer.response import ResponseStream
from gateway.calls.preparation.prepare import Prepared, prepare
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
from gateway.core.exchange import AttemptLog
from gateway.policy.deliver.shared_limits import SharedLimits
from metatemplate.values.prompt import Notice

T = TypeVar("T")

FINAL = (DeadlineExceeded, UpstreamIgnoredParameter, UpstreamTooLarge)
"""Failures that cause no fallback: the call has no time left, or the request itself is the reason."""


class FallbackModels:
    """The models of one call: the requested model, and after each failure the next fallback model."""

    def __init__(self, route: Route, call: Call, attempts: AttemptLog) -> None:
        delivery = route.spec.policy.delivery
        self.route = route
        self.call = call
        """The call for the current model, with a notice for each model that failed."""
        self._fallbacks = route.fallbacks
        self._names = route.fallbacks_of(call.caller)
        self._limits = SharedLimits(attempts, delivery.timeout.total)
        self._left = delivery.retry.attempts
        """The number of attempts that failing exchanges have left. Exchanges that were answered do not count."""
        self._used = 0
        """The number of attempts before the current exchange."""

    def limited(self, prepared: Prepared) -> Prepared:
        """Return the next exchange of the call with the limits of the call."""
        self._used = self._counted
        attempts = max(self._left - len(self._names), 1)
        return replace(prepared, exchange=self._limits.apply(prepared.exchange, attempts))

    async def following(self, error: UpstreamError, prepare: Callable[[Route, Call], Awaitable[T]]) -> T | None:
        """Go to the next model that can take the conversation, after the current exchange has failed.

        Returns the call as prepared for that model. None if no model can take it, or if no attempt or time is left.
        """
        notice = Notice("fallback", f"{self.route.spec.name}={error.code}")
        self.call = replace(self.call, notices=(*self.call.notices, notice))
        self._left -= self._counted - self._used
        if self._left <= 0 or isinstance(error, FINAL):
            return None
        deadline = self._limits.deadline
        while self._names and asyncio.get_running_loop().time() < deadline:
            route = self._fallbacks[self._names.pop(0)]
            call = replace(self.call, model=route.spec.name)
            with suppress(RequestError, TimeoutError):  # the model cannot take this conversation, or the time is over
                async with asyncio.timeout_at(deadline):
                    prepared = await prepare(route, call)
                    drop_tracebacks(error)
                    self.route, self.call = route, call
                    return prepared
        return None

    @property
    def _counted(self) -> int:
        return self._limits.attempts.count - self._limits.attempts.stale


class FallbackRun(CallRun):
    """A ``CallRun`` that tries the call's fallback models in order, if a model fails.

    After entering, ``route`` and ``prepared`` are the route and the prepared call of the model that answers.
    """

    __slots__ = ("_models",)

    def __init__(self, route: Route, prepared: Prepared, timeline: CallTimeline, call: Call) -> None:
        super().__init__(route, prepared, timeline)
        self._models = FallbackModels(route, call, prepared.exchange.attempts)

    async def __aenter__(self) -> ResponseStream:
        models = self._models
        while True:
            self.prepared = models.limited(self.prepared)
            try:
                return await super().__aenter__()
            except UpstreamError as error:
                if (prepared := await models.following(error, prepare)) is None:
                    raise
                self.route, self.prepared = models.route, prepared
