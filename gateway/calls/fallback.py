"""Sends a call to another model if the first model fails. The call is prepared again, with the other model's template.

A fallback is possible only before the answer has begun, and only for conversations. A raw prompt was written for one
model, and the vectors of two embedding models cannot be compared (``docs/spec/reliability.md`` 4.5).
"""

from __future__ import annotations

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
        attempts, fallbacks = self.prepared.exchange.attempts, self.route.fallbacks
        names, notices = iter(self._call.fallbacks), self._call.notices
        while True:
            try:
                return await super().__aenter__()
            except UpstreamError as error:
                if isinstance(error, FINAL):
                    raise
                failed = Notice("fallback", f"{self.route.spec.name}={error.code}")
                notices = (*notices, failed)
                prepared = None
                for name in names:
                    call = replace(self._call, model=name, notices=notices)
                    try:
                        prepared = await prepare(fallbacks[name], call)
                    except RequestError:  # the other model cannot take this conversation
                        continue
                    break
                if prepared is None:
                    raise
                drop_tracebacks(error)
                self.route = fallbacks[name]
                exchange = replace(prepared.exchange, attempts=attempts)
                self.prepared = replace(prepared, exchange=exchange)
