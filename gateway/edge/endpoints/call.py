"""Admits a call, calls the endpoint, and records how the call ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

from gateway.calls.admission.admit import Admitted, admit, model_of_refused
from gateway.calls.timeline import UNKNOWN_MODEL, CallTimeline
from gateway.core.errors import GatewayError, Overloaded, RateLimitExceeded, UpstreamError, drop_tracebacks
from gateway.edge.cancellation import ClientGone
from gateway.edge.endpoints.answer import context_headers, send_pending
from gateway.edge.endpoints.table import Endpoint
from gateway.edge.error_response import send_error
from gateway.edge.http_request import HttpRequest
from gateway.edge.state import GatewayState
from gateway.policy.access.call_queue import SHUTTING_DOWN, refusal
from gateway.policy.access.limits import Permit
from gateway.telemetry.call_log import log_call

LOG = logging.getLogger("gateway.edge")

CLIENT_CLOSED_REQUEST = 499
"""The status recorded for a call whose client left or stalled. This status is never sent."""


class CallHandler:
    """Serves one endpoint."""

    def __init__(self, endpoint: Endpoint, state: GatewayState) -> None:
        self._endpoint = endpoint
        self._state = state

    async def serve(self, request: HttpRequest) -> None:
        """Answer a call, and record once how the call ended: with an answer, an error, a disconnect or a shutdown."""
        state, admitted = self._state, None
        timeline = CallTimeline(self._endpoint.name, request.request_id, request.received)
        timeline.gauge = state.metrics.in_flight
        state.running += 1
        end = ("internal_error", 500, "")
        try:
            try:
                if state.draining or state.running > state.stack.snapshot.server.max_in_flight:
                    await self._refuse(request, timeline)
                omit = self._endpoint.for_tokenizers
                found = await admit(request, state.stack, self._endpoint.read, timeline, may_omit_model=omit)
                admitted = found if found.permit is None else self._use(found, found.permit, request)
                await self._endpoint.respond(request, admitted.call, admitted.route, timeline)
                end = ("ok", request.status, "")
            except asyncio.CancelledError:
                end = ("cancelled", request.status or CLIENT_CLOSED_REQUEST, "")
                request.reraise()
                raise
        except ClientGone as gone:
            phase = gone.phase or ("mid_stream" if timeline.begun else "before_first")
            end = (gone.outcome, CLIENT_CLOSED_REQUEST, phase)
            drop_tracebacks(gone)
        except GatewayError as error:
            if admitted is None:
                self._refused(request, error)
            end = (error.code, request.status or error.status, "")
            is_attempt = timeline.attempt_log.count and (error.upstream_status or isinstance(error, UpstreamError))
            if not is_attempt:  # a failed attempt has a line with its reason
                timeline.refusal = error.log_message or error.message
            await _fail(request, error, timeline)
            end = (error.code, request.status, "")
            drop_tracebacks(error)
        except Exception:  # a bug: log the traceback, and answer with status 500
            LOG.exception("internal error in request %s", request.request_id)
            failure = GatewayError("internal error; the gateway's log has the details under this request id")
            end = (failure.code, request.status or failure.status, "")
            _send_failure(request, failure, timeline)
        finally:
            state.running -= 1
            timeline.key = request.caller.key
            timeline.end(*end)
            if admitted is not None and admitted.permit is not None:
                admitted.permit.end(timeline)
            if timeline.recording is not None:
                timeline.recording.notices += timeline.notices()
                timeline.recording.end(timeline)
            state.metrics.record(timeline)
            log_call(timeline)

    async def _refuse(self, request: HttpRequest, timeline: CallTimeline) -> NoReturn:
        """Refuse a call because of load or a shutdown, before its body is read."""
        timeline.count_for(UNKNOWN_MODEL)
        with suppress(GatewayError, TimeoutError):
            timeline.model = await model_of_refused(request, self._state.stack)
        raise self._refusal(request)

    def _use(self, admitted: Admitted, permit: Permit, request: HttpRequest) -> Admitted:
        """Add the headers of a permit to the response. Release the permit if a shutdown began in the meantime."""
        request.extra_headers += _header_block(permit.headers)
        if self._state.draining:
            permit.end()
            raise self._refusal(request)
        return admitted

    def _refused(self, request: HttpRequest, error: GatewayError) -> None:
        """Add the headers of a refusal to its response, and count a refusal because of load."""
        if isinstance(error, RateLimitExceeded):
            request.extra_headers += _header_block(error.headers)
        elif type(error) is Overloaded:  # a call that the end of a shutdown interrupts is not refused
            self._state.metrics.count("gateway_shed_total", error.shed_reason)

    def _refusal(self, request: HttpRequest) -> Overloaded:
        """Return the error for a call that cannot run now."""
        if self._state.draining:
            request.closing = True
            return refusal("draining", SHUTTING_DOWN)
        limit = self._state.stack.snapshot.server.max_in_flight
        return refusal("in_flight", f"too many concurrent requests (server.max_in_flight={limit}); retry later")


async def _fail(request: HttpRequest, error: GatewayError, timeline: CallTimeline) -> None:
    """Send the unsent text of a stream, then the error."""
    request.shield()  # the unsent text takes time to parse; a client that leaves meanwhile does not change the outcome
    last = b""
    try:
        last = await send_pending(request, timeline)
    except Exception:  # a bug: log the traceback, and send the first error to the client
        LOG.exception("request %s failed, and its unsent text could not be sent", request.request_id)
    _send_failure(request, error, timeline, last)


def _send_failure(request: HttpRequest, error: GatewayError, timeline: CallTimeline, last: bytes = b"") -> None:
    """Send an error response if nothing has been sent yet, else the error as the last stream event, after ``last``."""
    attempts = timeline.attempt_log
    error.retried = error.retried or attempts.retries > 0
    if isinstance(error, UpstreamError) and attempts.target:
        earlier = ", ".join(attempts.failed_attempts()[: attempts.count - 1])
        error.message += f" (target {attempts.target}{f'; earlier attempts: {earlier}' if earlier else ''})"
    if not request.status:
        send_error(request, error, context_headers(request, timeline))
    elif request.open_stream is not None:
        _, writer = request.open_stream
        request.end(last + writer.failure(error))


def _header_block(headers: Mapping[str, str]) -> bytes:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode("ascii")
