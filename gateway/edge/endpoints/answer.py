"""Runs a call and writes the model's answer, whole or as a stream."""

from __future__ import annotations

from dataclasses import replace

import orjson

from gateway.calls.answer.response import ResponseStream
from gateway.calls.explain import explanation
from gateway.calls.fallback import FallbackRun
from gateway.calls.preparation.prepare import prepare
from gateway.calls.route import Route
from gateway.calls.run import CallRun
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Call
from gateway.core.events import Completion
from gateway.core.text_splice import TextSplice
from gateway.edge.endpoints import turns
from gateway.edge.endpoints.writer import response_writer
from gateway.edge.http_request import JSON_HEADER, HttpRequest
from gateway.edge.provenance import provenance
from gateway.wire.responses import ResponseWriter

STREAM_HEADERS = b"content-type: text/event-stream\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"


async def respond(
    writer_class: type[ResponseWriter] | None, request: HttpRequest, call: Call, route: Route, timeline: CallTimeline
) -> None:
    """Prepare the call, open the backend and send the backend's answer.

    ``writer_class``: the writer of the answer; None if the endpoint does not answer with a completion.
    """
    if call.turns is not None:
        assert writer_class is not None
        await turns.respond(writer_class, request, call, route, timeline)
        return
    prepared = await prepare(route, call)
    request.route_context = route, prepared
    timeline.render, timeline.markers = prepared.render_seconds, prepared.markers
    if prepared.prompt is not None and prepared.prompt.metadata.notices:
        timeline.template_notices = tuple(notice.rule for notice in prepared.prompt.metadata.notices)
    run = CallRun(route, prepared, timeline)
    if route.fallbacks and call.endpoint == "chat" and route.fallbacks_of(call.caller):
        run = FallbackRun(route, prepared, timeline, call)
    async with run as events:
        if run.route is not route:  # another model answers
            route, prepared = request.route_context = run.route, run.prepared
            call = replace(call, model=route.spec.name)
        if call.stream:
            writer = response_writer(writer_class, call, route, prepared, timeline)
            request.open_stream = events, writer
            last = await _stream(request, events, writer, timeline, route.spec.policy.delivery.timeout.idle)
        else:
            answer = await events.whole(keep_events=writer_class is not None and writer_class.needs_events)
    request.commit()
    if call.stream:
        request.end(last + writer.end())
        return
    # The body is written after the backend is closed, so that the explanation and the headers contain the same facts.
    if isinstance(answer, Completion):
        body = response_writer(writer_class, call, route, prepared, timeline).whole(answer)
    else:
        body = {**answer.body, "model": call.model}
        if call.explain:
            body["gateway"] = explanation(route, prepared, timeline)
    request.reply(200, JSON_HEADER + provenance(route, prepared, timeline), orjson.dumps(body))


def context_headers(request: HttpRequest, timeline: CallTimeline) -> bytes:
    """Return the ``x-gateway-*`` headers of an answer; empty if the call is not prepared yet."""
    return b"" if request.route_context is None else provenance(*request.route_context, timeline)


async def send_pending(request: HttpRequest, timeline: CallTimeline) -> bytes:
    """Return the stream events for text that a failed stream has not sent yet. Start the stream if events exist."""
    if request.open_stream is None:
        return b""
    events, writer = request.open_stream
    batch = await events.take_pending()
    frames = writer.frames(batch)
    if frames:
        if not request.status:
            request.start(200, STREAM_HEADERS + context_headers(request, timeline))
        timeline.events_written(batch)
    return frames


async def _stream(
    request: HttpRequest, events: ResponseStream, writer: ResponseWriter, timeline: CallTimeline, write_timeout: float
) -> bytes:
    """Send a stream. Returns the last frames, which the caller sends together with the end of the stream."""
    while batch := await events.next_batch():
        frames, exhausted = writer.frames(batch), events.exhausted
        if (frames or exhausted) and not request.status:
            # The head is sent with the first frame, so that an earlier failure can still get an error status.
            request.start(200, STREAM_HEADERS + context_headers(request, timeline))
        if exhausted:
            timeline.events_written(batch)
            return frames
        if not frames:
            continue
        await request.write(frames, write_timeout)
        timeline.events_written(batch)
        # From here on plain text is forwarded without waking this task. Any other event ends the forwarding.
        if events.can_forward and request.can_try_write and (choice_frames := writer.choice_frames()):
            splice = TextSplice(request.try_write, choice_frames)
            try:
                await events.forward_text(splice)
            finally:
                timeline.text_forwarded(splice.moments)
    return b""
