"""Answers calls: admits a call, runs its endpoint, sends the answer, and records how the call ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from gateway.calls.admission.admit import admit, model_of_refused
from gateway.calls.admission.facts import LocalBody, RequestBody, RequestFacts
from gateway.calls.endpoints.answer import send_pending
from gateway.calls.endpoints.cancellation import ClientGone
from gateway.calls.endpoints.context import CallContext
from gateway.calls.endpoints.sink import AnswerSink, KeptAnswer
from gateway.calls.endpoints.table import LoadedEndpoint, load
from gateway.calls.stack import Stack
from gateway.calls.timeline import UNKNOWN_MODEL
from gateway.core.errors import (
    GatewayError,
    Overloaded,
    RateLimitExceeded,
    UpstreamError,
    as_gateway_error,
    drop_tracebacks,
)
from gateway.policy.access.call_queue import SHUTTING_DOWN, refusal
from gateway.telemetry.call_log import log_call
from gateway.telemetry.metrics import Metrics
from metatemplate.errors import MetaTemplateError

LOG = logging.getLogger("gateway.edge")

CLIENT_CLOSED_REQUEST = 499
"""The status recorded for a call whose client left or stalled. This status is never sent."""


@dataclass(eq=False, slots=True)
class GatewayState:
    """The state that all handlers of a process share. The package ``server`` sets ``stack`` and ``ending``.

    A reload replaces ``stack``. A running call keeps the stack that was set when the call began.
    """

    stack: Stack
    metrics: Metrics
    exposition: Callable[[], Awaitable[bytes]]
    """Returns the body of ``/metrics`` for all workers together."""
    status: Callable[[], Awaitable[dict[str, Any]]]
    """Returns the body of ``/status`` for all workers together."""
    started_at: int
    """Seconds since the epoch; the same in all workers."""
    viewer_secret: bytes
    """Signs the sessions of the viewer unless ``server.viewer_secret`` is set; the same in all workers."""
    ending: bool = False
    """True: the process is about to end, so ``/health/ready`` answers 503. Calls are accepted until ``drain``."""
    draining: bool = False
    """True: new calls are refused."""
    running: int = 0
    """The number of running calls in this process."""

    def drain(self) -> None:
        """Refuse new calls, and calls that wait for a free slot (``docs/spec/reliability.md`` E04)."""
        self.draining = True
        self.stack.limiter.drain()


class Service:
    """Answers calls, with admission, limits, cancellation and a record.

    The HTTP endpoints, ``gateway run``, the pages of the viewer and Python programs call it.
    """

    def __init__(self, state: GatewayState) -> None:
        self._state = state

    async def answer(self, facts: RequestFacts, endpoint: LoadedEndpoint, body: RequestBody, sink: AnswerSink) -> None:
        """Answer a call, and record once how the call ended: with an answer, an error, a disconnect or a shutdown.

        Errors are sent to ``sink``. Raises only ``asyncio.CancelledError``, if the task was cancelled from elsewhere.
        """
        state = self._state
        stack = state.stack
        timeline = stack.timeline(endpoint.name, facts.request_id, facts.received, facts.headers)
        timeline.gauge = state.metrics.in_flight
        context = CallContext(facts, sink, timeline)
        state.running += 1
        try:
            try:
                if state.draining or state.running > stack.snapshot.server.max_in_flight:
                    await self._refuse(context, body)
                admitted = await admit(facts, body, stack, endpoint.read, timeline, endpoint.for_tokenizers)
                context.call, context.route, permit = admitted
                if permit is not None:
                    sink.add_headers(permit.headers)
                    if state.draining:  # a shutdown began in the meantime
                        permit.end()
                        raise self._refusal(sink)
                    context.permit = permit
                context.is_admitted = True
                await endpoint.respond(context)
                outcome = ("ok", sink.status, "")
            except asyncio.CancelledError:
                sink.reraise()
                raise
        except BaseException as raised:
            error = as_gateway_error(raised) if isinstance(raised, MetaTemplateError) else raised
            outcome = outcome_of(error, context)
            if not isinstance(error, Exception):
                raise
            await self._report(error, context)
            if error is not raised:
                drop_tracebacks(raised)
        finally:
            state.running -= 1
            timeline.end(*outcome)
            if context.permit is not None:
                context.permit.end(timeline)
            if timeline.recording is not None:
                timeline.recording.end(timeline, timeline.notices())
            state.metrics.record(timeline)
            log_call(timeline)

    async def keep_answer(self, path: str, body: bytes, facts: RequestFacts) -> KeptAnswer:
        """Answer a call from this process. ``path``: the path of an endpoint, such as ``/v1/chat/completions``."""
        answer = KeptAnswer()
        await self.answer(facts, load(path), LocalBody(body), answer)
        return answer

    async def _refuse(self, context: CallContext, body: RequestBody) -> NoReturn:
        """Refuse a call because of load or a shutdown, before its body is read."""
        timeline, stack = context.timeline, self._state.stack
        timeline.count_for(UNKNOWN_MODEL)
        with suppress(GatewayError, TimeoutError):
            timeline.model = await model_of_refused(context.facts, body, stack, timeline)
        raise self._refusal(context.sink)

    def _refusal(self, sink: AnswerSink) -> Overloaded:
        """Return the error for a call that cannot run now."""
        if self._state.draining:
            sink.closing = True
            return refusal("draining", SHUTTING_DOWN)
        limit = self._state.stack.snapshot.server.max_in_flight
        return refusal("in_flight", f"too many concurrent requests (server.max_in_flight={limit}); retry later")

    async def _report(self, error: Exception, context: CallContext) -> None:
        """Send the error, after the unsent text of a stream. Nothing is sent if the client has left."""
        timeline, last, request_id = context.timeline, b"", context.facts.request_id
        if isinstance(error, ClientGone):
            drop_tracebacks(error)
            return
        if not isinstance(error, GatewayError):  # a bug: log the traceback, and answer with status 500
            LOG.error("internal error in request %s", request_id, exc_info=error)
            failure = GatewayError("internal error; the gateway's log has the details under this request id")
            _send_failure(failure, context)
            return
        if not context.is_admitted:
            if isinstance(error, RateLimitExceeded):
                context.sink.add_headers(error.headers)
            elif type(error) is Overloaded:  # a call that the end of a shutdown interrupts is not refused
                self._state.metrics.count("gateway_shed_total", error.shed_reason)
        is_attempt = timeline.attempt_log.count and (error.upstream_status or isinstance(error, UpstreamError))
        if not is_attempt:  # a failed attempt has a line with its reason
            timeline.refusal = error.log_message or error.message
        context.sink.shield()  # the unsent text takes time to parse; a disconnect meanwhile does not change the outcome
        try:
            last = await send_pending(context)
        except Exception:  # a bug: log the traceback, and send the first error to the client
            LOG.exception("request %s failed, and its unsent text could not be sent", request_id)
        _send_failure(error, context, last)
        drop_tracebacks(error)


def outcome_of(error: BaseException, context: CallContext) -> tuple[str, int, str]:
    """Return how a call ended that ``error`` has ended: outcome, status and phase (``CallTimeline.end``)."""
    status = context.sink.status
    if isinstance(error, ClientGone):
        phase = error.phase or ("mid_stream" if context.timeline.begun else "before_first")
        return error.outcome, CLIENT_CLOSED_REQUEST, phase
    if isinstance(error, asyncio.CancelledError):
        return "cancelled", status or CLIENT_CLOSED_REQUEST, ""
    if isinstance(error, GatewayError):
        return error.code, status or error.status, ""
    return GatewayError.code, status or GatewayError.status, ""


def _send_failure(error: GatewayError, context: CallContext, last: bytes = b"") -> None:
    """Send an error response if nothing has been sent yet, else the error as the last stream event, after ``last``."""
    attempts, sink = context.timeline.attempt_log, context.sink
    error.retried = error.retried or attempts.retries > 0
    if isinstance(error, UpstreamError) and attempts.target:
        earlier = ", ".join(attempts.failed_attempts()[: attempts.count - 1])
        error.message += f" (target {attempts.target}{f'; earlier attempts: {earlier}' if earlier else ''})"
    context.timeline.error = error.message
    if not sink.status:
        sink.send_error(error, context.headers())
    elif context.stream is not None:
        sink.end(last + context.writer.failure(error))
