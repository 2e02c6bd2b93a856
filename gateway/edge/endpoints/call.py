"""Reads a call, calls the endpoint, and records how the call ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, NoReturn

from gateway.calls.route import Route
from gateway.calls.stack import Stack
from gateway.calls.timeline import UNKNOWN_MODEL, CallTimeline
from gateway.core.call import Call
from gateway.core.caller import Caller
from gateway.core.errors import (
    GatewayError,
    InvalidValue,
    Overloaded,
    RateLimitExceeded,
    UnsupportedEncoding,
    UnsupportedMediaType,
    UpstreamError,
    drop_tracebacks,
)
from gateway.core.record import Record
from gateway.core.words import quoted
from gateway.edge.authorize import authenticate, authorized_route, only_model
from gateway.edge.cancellation import ClientGone
from gateway.edge.endpoints.answer import context_headers, send_pending
from gateway.edge.endpoints.table import Endpoint
from gateway.edge.error_response import send_error
from gateway.edge.http_request import HttpRequest, body_too_large
from gateway.edge.state import SHUTTING_DOWN, GatewayState
from gateway.policy.admit.limits import Admission
from gateway.policy.deliver.storage.recorder import CallRecording
from gateway.telemetry.call_log import log_call
from gateway.wire.json import parse_object

LOG = logging.getLogger("gateway.edge")

CLIENT_CLOSED_REQUEST = 499
"""The status recorded for a call whose client left or stalled. This status is never sent."""

SHORT_BODY = 64 * 1024
"""If a call is refused because of load, a body of at most this many bytes is read, to find the model for metrics."""
SHORT_BODY_SECONDS = 0.25
"""Seconds to wait for the body of a call refused because of load. Clients send a body directly after the head."""
LONG_BODY = 1024 * 1024
"""The size in bytes above which other calls may run between parsing and checking a body. Both take milliseconds."""

UTF_8 = ("utf-8", "utf8")


class CallHandler:
    """Serves one endpoint."""

    def __init__(self, endpoint: Endpoint, state: GatewayState) -> None:
        self._endpoint = endpoint
        self._state = state

    async def serve(self, request: HttpRequest) -> None:
        """Answer a call, and record once how the call ended: with an answer, an error, a disconnect or a shutdown."""
        endpoint, state = self._endpoint, self._state
        metrics = state.metrics
        timeline = CallTimeline(endpoint.name, request.request_id, request.received)
        end = ("internal_error", 500, "")
        admission: Admission | None = None
        timeline.in_flight = metrics.in_flight[endpoint.name, UNKNOWN_MODEL]
        timeline.in_flight.value += 1
        state.running += 1
        try:
            try:
                if state.draining or state.running > state.stack.snapshot.server.max_in_flight:
                    await self._refuse(request, timeline)
                call, route = await self._read(request, timeline)
                if (mode := route.spec.policy.record) != "off":
                    timeline.recording = _recording(state.stack, mode, route, request.caller)
                if state.stack.limiter.is_limited(call.caller, call.model):
                    admission = await self._admit(request, call, route, timeline)
                await endpoint.respond(request, call, route, timeline)
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
            end = (error.code, request.status or error.status, "")
            is_attempt = timeline.attempts and (error.upstream_status or isinstance(error, UpstreamError))
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
            timeline.in_flight.value -= 1
            timeline.caller = request.caller
            record = timeline.freeze(*end)
            if admission is not None:
                admission.end(_used_tokens(record))
            if timeline.recording is not None:
                timeline.recording.end(record)
            metrics.record(record)
            log_call(record)

    async def _read(self, request: HttpRequest, timeline: CallTimeline) -> tuple[Call, Route]:
        """Return the call in the request's body, and the route of the call's model."""
        stack = self._state.stack
        caller = authenticate(stack, request)
        if request.model is not None:
            timeline.model = request.model
        limit = stack.snapshot.server.max_body
        _check_body_headers(request, limit)
        raw = request.buffered_body
        if raw is None or len(raw) > limit:
            raw = await request.body(limit)
        request.buffered_body = None
        body = parse_object(raw)
        if len(raw) > LONG_BODY:
            await asyncio.sleep(0)  # other calls run between parsing and checking
        if request.model is not None:
            _name_model(body, request.model)
        elif self._endpoint.for_tokenizers and body.get("model") is None:
            body["model"] = only_model(stack, caller)
        try:
            call = self._endpoint.read(body, request_id=request.request_id, caller=caller)
        except GatewayError:
            name = body.get("model")
            if type(name) is str and name in stack.routes and caller.may_use(name):
                timeline.model = name
            raise
        route = authorized_route(stack, caller, call.model)
        template = route.template.spec
        self._count_for(call.model, timeline)
        timeline.template, timeline.kind = template.name, template.kind
        timeline.stream = call.stream
        timeline.admitted()
        return call, route

    async def _admit(self, request: HttpRequest, call: Call, route: Route, timeline: CallTimeline) -> Admission:
        """Check the limits of the key and the model. Wait while the model has too many calls."""
        limiter = self._state.stack.limiter
        texts = call.prompts if call.dialogue is None else call.dialogue.texts
        tokens = call.n * _most_tokens(call, route)
        self._state.queued.add(request)
        try:
            admission = await limiter.admit(
                call.caller, route.spec, sum(map(len, texts)), tokens, timeline.queue_waited
            )
        except RateLimitExceeded as error:
            request.extra_headers += _header_block(error.headers)
            raise
        except Overloaded as error:
            self._state.metrics.count("gateway_shed_total", error.shed_reason)
            raise
        finally:
            self._state.queued.discard(request)
        request.extra_headers += _header_block(admission.headers)
        if self._state.draining:
            admission.end(0)
            raise self._refusal(request)
        return admission

    def _count_for(self, model: str, timeline: CallTimeline) -> None:
        """Count the running call for its model instead of the model ``unknown``."""
        timeline.model = model
        timeline.in_flight.value -= 1
        timeline.in_flight = self._state.metrics.in_flight[self._endpoint.name, model]
        timeline.in_flight.value += 1

    async def _refuse(self, request: HttpRequest, timeline: CallTimeline) -> NoReturn:
        state = self._state
        with suppress(GatewayError, TimeoutError):
            self._count_for(await _refused_model(state.stack, request), timeline)
        raise self._refusal(request)

    def _refusal(self, request: HttpRequest) -> Overloaded:
        """Return the error for a call that cannot run now, and count the refusal."""
        state = self._state
        if state.draining:
            state.metrics.count("gateway_shed_total", "draining")
            request.closing = True
            return Overloaded(SHUTTING_DOWN)
        state.metrics.count("gateway_shed_total", "in_flight")
        limit = state.stack.snapshot.server.max_in_flight
        return Overloaded(f"too many concurrent requests (server.max_in_flight={limit}); retry later")


def _recording(stack: Stack, mode: Literal["metadata", "full"], route: Route, caller: Caller) -> CallRecording | None:
    """Return the recording of a call; None if the call must not be recorded."""
    if stack.recorder is None or not caller.record:
        return None
    return stack.recorder.begin(mode, route.spec.policy.name, stack.snapshot.recordings, stack.redactor)


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
    error.retried = error.retried or timeline.attempt_log.retries > 0
    if isinstance(error, UpstreamError) and timeline.target:
        earlier = ", ".join(timeline.failed_attempts[: timeline.attempts - 1])
        error.message += f" (target {timeline.target}{f'; earlier attempts: {earlier}' if earlier else ''})"
    if not request.status:
        send_error(request, error, context_headers(request, timeline))
    elif request.open_stream is not None:
        _, writer = request.open_stream
        request.end(last + writer.failure(error))


def _name_model(body: dict[str, Any], model: str) -> None:
    """Write the model of the path (``/{model}/v1/…``) into the body. Refuse a body that names a different model."""
    if body.get("model") is None:
        body["model"] = model
    if body["model"] != model:
        raise InvalidValue(
            f"the body names another model than the path ({quoted(model)}); use the same model in both", param="model"
        )


def _most_tokens(call: Call, route: Route) -> int:
    """Return the maximum number of tokens of one answer, by the request, the policy and the context of the model."""
    policy = route.spec.policy.params
    limit = call.params.get("max_completion_tokens") or call.params.get("max_tokens") or policy.max_tokens
    bounds = [policy.clamp.get("max_tokens"), policy.clamp.get("max_completion_tokens"), route.max_model_len]
    return int(min([limit, *[bound for bound in bounds if bound is not None]]))


def _used_tokens(record: Record) -> int | None:
    """Return the tokens that a finished call has used; None if the number is unknown, so that the estimate stays."""
    if record.prompt_tokens is None and record.completion_tokens is None:
        return None if record.outcome == "ok" or record.upstream_first is not None else 0
    return (record.prompt_tokens or 0) + (record.completion_tokens or 0)


async def _refused_model(stack: Stack, request: HttpRequest) -> str:
    """Return the model of a call that is refused because of load, from the path or from a short body.

    Raises ``GatewayError`` or ``TimeoutError`` if the model is not known so early, or if the key forbids the model.
    """
    caller, name = authenticate(stack, request), request.model
    if name is None:
        limit = min(stack.snapshot.server.max_body, SHORT_BODY)
        _check_body_headers(request, limit)
        async with asyncio.timeout(SHORT_BODY_SECONDS):
            name = parse_object(await request.body(limit)).get("model")
    return authorized_route(stack, caller, name if isinstance(name, str) else "").spec.name


def _check_body_headers(request: HttpRequest, limit: int) -> None:
    """Refuse a request whose headers announce a body that is not plain JSON or is larger than ``limit`` bytes."""
    headers = request.headers
    if headers.get(b"content-type") != b"application/json":
        _check_content_type(request.header("content-type"))
    if b"content-encoding" in headers and headers[b"content-encoding"].strip().lower() not in (b"", b"identity"):
        raise UnsupportedEncoding("the request body is compressed; send the body without content-encoding")
    length = headers.get(b"content-length", b"") if request.buffered_body is None else b""
    if length.isdigit() and int(length) > limit:
        raise body_too_large(limit)


def _check_content_type(declared: str | None) -> None:
    media_type, *parameters = (declared or "").lower().split(";")
    pairs = [parameter.partition("=") for parameter in parameters]
    charsets = [value.strip().strip('"') for name, _, value in pairs if name.strip() == "charset"]
    if media_type.strip() != "application/json" or any(charset not in UTF_8 for charset in charsets):
        raise UnsupportedMediaType("send the request body as content-type: application/json, in UTF-8")


def _header_block(headers: Mapping[str, str]) -> bytes:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode("ascii")
