"""How is a call served? Read, prepared, run, spoken; and whatever happens, recorded once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NoReturn

import orjson

from gateway.calls.prepare import Prepared, prepare
from gateway.calls.response import ResponseStream
from gateway.calls.route import Route
from gateway.calls.run import CallRun
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Call
from gateway.core.completion import Completion
from gateway.core.errors import GatewayError, InvalidValue, Overloaded, drop_tracebacks
from gateway.core.events import Document
from gateway.core.exchange import Events
from gateway.core.text_splice import TextSplice
from gateway.edge.authorize import reach
from gateway.edge.body import PLAIN_JSON, read_body
from gateway.edge.cancellation import ClientGone
from gateway.edge.http_request import HttpRequest
from gateway.edge.provenance import explanation, provenance, rendering
from gateway.edge.replies import JSON, error_event, send_error, send_json
from gateway.runtime import Runtime
from gateway.stream.fold import Fold, fast_fold
from gateway.telemetry.call_log import log_call
from gateway.wire.error_object import quoted
from gateway.wire.json import parse_object
from gateway.wire.requests import read_chat, read_completion, read_embedding
from gateway.wire.responses import DONE, SPEAKERS, ResponseWriter, plain_chat

LOG = logging.getLogger("gateway.edge")

READERS: dict[str, Callable[..., Call]] = {
    "chat": read_chat,
    "completions": read_completion,
    "embeddings": read_embedding,
}

GONE = 499
"""The status of a call whose client left or stalled; for records only: no client reads it."""

STREAM_HEADERS = b"content-type: text/event-stream\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"

LONG_BODY = 1024 * 1024
"""Bytes of a body that may take tens of milliseconds to parse, and as long again to check."""

Work = Callable[[HttpRequest, CallTimeline], Awaitable[None]]


class Calls:
    """Serves the three endpoints that run a model, and the one that only renders."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._running = 0
        # No methods: each would be one more frame to go through whenever a call goes on.
        self.chat = partial(self._serve, "chat", self._answer)
        """``POST /v1/chat/completions``."""
        self.completions = partial(self._serve, "completions", self._answer)
        """``POST /v1/completions``."""
        self.embeddings = partial(self._serve, "embeddings", self._answer)
        """``POST /v1/embeddings``."""
        self.render = partial(self._serve, "render", self._render)
        """``POST /v1/render``: the body of a chat request, everything but the inference."""

    async def read(self, asked: HttpRequest, endpoint: str, progress: CallTimeline) -> tuple[Call, Route]:
        """The call and the model it is for."""
        stack = self._runtime.stack
        assert stack is not None
        key = stack.keyring.admit(asked.header("authorization")) if stack.keyring.needed else None
        if asked.model is not None:
            reach(stack, key, asked.model)
        limit, headers, raw = stack.snapshot.server.max_body, asked.headers, asked.early
        if (
            raw is not None
            and len(raw) <= limit
            and headers.get(b"content-type") == PLAIN_JSON
            and b"content-encoding" not in headers
        ):
            asked.early = None  # here already, and nothing about it to be refused
        else:
            raw = await read_body(asked, limit)
        body = parse_object(raw)
        if len(raw) > LONG_BODY:
            await asyncio.sleep(0)  # what has come meanwhile goes first
        if asked.model is not None:
            _name_model(body, asked.model)
        call = READERS[endpoint](body, request_id=asked.request_id, received=asked.received)
        route = stack.routes.get(call.model) if key is None else None
        if route is None:
            route = reach(stack, key, call.model)
        template = route.template.spec
        progress.model = call.model
        progress.template, progress.kind = template.name, template.kind
        progress.stream = call.stream
        progress.admitted()
        return call, route

    async def _serve(self, endpoint: str, work: Work, asked: HttpRequest) -> None:
        runtime = self._runtime
        stack, metrics = runtime.stack, runtime.metrics
        assert stack is not None
        progress = CallTimeline(endpoint, asked.request_id, asked.received)
        end = ("internal_error", 500, "")
        in_flight = metrics.in_flight[endpoint]
        in_flight.value += 1
        self._running += 1
        try:
            try:
                if runtime.draining or self._running > stack.snapshot.server.max_in_flight:
                    self._turn_away(asked)
                await work(asked, progress)
                end = ("ok", asked.status, "")
            except asyncio.CancelledError:
                end = ("cancelled", asked.status or GONE, "")
                asked.resign()
                raise
        except ClientGone as gone:
            end = (gone.outcome, GONE, gone.phase or ("mid_stream" if progress.begun else "before_first"))
            drop_tracebacks(gone)
        except GatewayError as error:
            end = (error.code, asked.status or error.status, "")
            await _break_off(asked, error, progress)
            end = (error.code, asked.status, "")
            drop_tracebacks(error)
        except Exception:  # a mistake of ours: the log gets the trace, the client an honest 500
            LOG.exception("%s failed inside the gateway", asked.request_id)
            failure = GatewayError("the gateway made a mistake; its log has the details under this request id")
            end = (failure.code, asked.status or failure.status, "")
            _report(asked, failure, progress)
        finally:
            self._running -= 1
            in_flight.value -= 1
            record = progress.freeze(*end)
            metrics.record(record)
            log_call(record)

    def _turn_away(self, asked: HttpRequest) -> NoReturn:
        if self._runtime.draining:
            self._runtime.metrics.count("gateway_shed_total", "draining")
            asked.closing = True
            raise Overloaded("the gateway is shutting down; ask again in a moment")
        self._runtime.metrics.count("gateway_shed_total", "in_flight")
        raise Overloaded("the gateway has as many calls under way as it may have (server.max_in_flight)")

    async def _render(self, asked: HttpRequest, progress: CallTimeline) -> None:
        call, route = await self.read(asked, "chat", progress)
        prepared, body = await rendering(route, call)
        asked.settle()
        send_json(asked, 200, body, provenance(route, prepared))

    async def _answer(self, asked: HttpRequest, progress: CallTimeline) -> None:
        call, route = await self.read(asked, progress.endpoint, progress)
        prepared = await prepare(route, call)
        asked.known = route, prepared
        progress.render = prepared.render_seconds
        if prepared.prompt is not None and prepared.prompt.metadata.notices:
            progress.role_rewrites = tuple(notice.rule for notice in prepared.prompt.metadata.notices)
        async with CallRun(route, prepared, progress) as events:
            if call.stream:
                speaker = _speaker(call, route, prepared, progress)
                asked.telling = events, speaker
                last = await _stream(asked, events, speaker, progress, route.spec.policy.delivery.idle)
            else:
                answer = await _whole(events)
        asked.settle()
        if call.stream:
            asked.end(last + speaker.usage() + DONE)
        else:
            # Spoken when the upstream is closed, so that an explanation knows as much as the headers.
            body = None
            if call.endpoint == "chat" and not call.explain:
                id_ = "chatcmpl-" + call.request_id.removeprefix("req_")
                body = plain_chat(answer, id_, call.model, int(time.time()))
            if body is None:
                body = _spoken(answer, call, route, prepared, progress)
            asked.reply(200, JSON + provenance(route, prepared, progress), orjson.dumps(body))


def _known(asked: HttpRequest, progress: CallTimeline) -> bytes:
    """The ``x-gateway-*`` headers, as far as they are known."""
    return b"" if asked.known is None else provenance(*asked.known, progress)


async def _break_off(asked: HttpRequest, error: GatewayError, progress: CallTimeline) -> None:
    """Tell the client of a failure, behind all that was held of its stream."""
    asked.conclude()  # it takes time to read a long text: who leaves meanwhile leaves a call that has failed
    last = b""
    try:
        last = await _unsaid(asked, progress)
    except Exception:  # a mistake of ours: the log gets the trace, the client is told of what came first
        LOG.exception("%s lost what was held of its stream", asked.request_id)
    _report(asked, error, progress, last)


async def _unsaid(asked: HttpRequest, progress: CallTimeline) -> bytes:
    """What was held back of a stream that has broken off; the client gets it before it is told why."""
    if asked.telling is None:
        return b""
    events, speaker = asked.telling
    batch = await events.take_pending()
    frames = speaker.frames(batch)
    if frames:
        if not asked.status:
            asked.begin(200, STREAM_HEADERS + _known(asked, progress))
        progress.wrote(batch)
    return frames


def _report(asked: HttpRequest, error: GatewayError, progress: CallTimeline, last: bytes = b"") -> None:
    """Tell the client: with a real status if nothing is out yet, else as the last event, behind what is ``last``."""
    error.retried = progress.attempt_log.retries > 0
    if not asked.status:
        send_error(asked, error, _known(asked, progress))
    else:
        asked.end(last + error_event(error))


async def _stream(
    asked: HttpRequest, events: ResponseStream, speaker: ResponseWriter, progress: CallTimeline, write_timeout: float
) -> bytes:
    """All of a stream but its end; what it returns is to go out together with that."""
    while batch := await events.next_batch():
        frames, over = speaker.frames(batch), events.exhausted
        if (frames or over) and not asked.status:
            # Nothing is promised before the first frame exists: until here a failure is a real status.
            asked.begin(200, STREAM_HEADERS + _known(asked, progress))
        if over:
            progress.wrote(batch)
            return frames
        if not frames:
            continue
        await asked.write(frames, write_timeout)
        progress.wrote(batch)
        # From here on plain text goes from socket to socket without waking this task; anything else comes back here.
        if asked.passes_on and (lanes := speaker.lanes()):
            passage = TextSplice(asked.pass_on, lanes)
            try:
                await events.forward_text(passage)
            finally:
                progress.passed(passage.moments)
    return b""


async def _whole(events: Events) -> Completion | Document:
    batch = await events.next_batch()
    if events.exhausted and (completion := fast_fold(batch)) is not None:
        return completion
    fold = Fold()
    document: Document | None = None
    while batch:
        for event in batch:
            if type(event) is Document:
                document = event  # its counts are still to come
            else:
                fold.add(event)
        batch = await events.next_batch()
    return fold.result() if document is None else document


def _spoken(
    answer: Completion | Document, call: Call, route: Route, prepared: Prepared, progress: CallTimeline
) -> dict[str, Any]:
    if isinstance(answer, Completion):
        return _speaker(call, route, prepared, progress).whole(answer)
    body = {**answer.body, "model": call.model}
    if call.explain:
        body["gateway"] = explanation(route, prepared, progress)
    return body


def _speaker(call: Call, route: Route, prepared: Prepared, progress: CallTimeline) -> ResponseWriter:
    prefix = "chatcmpl" if call.endpoint == "chat" else "cmpl"
    return SPEAKERS[call.endpoint](
        id_=f"{prefix}-{call.request_id.removeprefix('req_')}",
        model=call.model,
        created=int(time.time()),
        include_usage=call.include_usage,
        top_logprobs=prepared.top_logprobs,
        gateway=partial(explanation, route, prepared, progress) if call.explain else None,
    )


def _name_model(body: dict[str, Any], model: str) -> None:
    """A path that names a model (``/{model}/v1/…``) stands in for a missing ``model``; it may not contradict one."""
    if body.get("model") is None:
        body["model"] = model
    if body["model"] != model:
        raise InvalidValue(f"the path names model {quoted(model)}, the body another; name one of them", param="model")
