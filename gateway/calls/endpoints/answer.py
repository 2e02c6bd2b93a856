"""Runs a call and writes the model's answer, whole or as a stream."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import monotonic

from gateway.calls.answer.response import ResponseStream
from gateway.calls.endpoints import turns
from gateway.calls.endpoints.context import CallContext
from gateway.calls.endpoints.writer import response_writer
from gateway.calls.explain import explanation
from gateway.calls.fallback import FallbackRun
from gateway.calls.preparation.prepare import prepare
from gateway.calls.run import CallRun
from gateway.core.text_splice import TextSplice
from gateway.wire.responses import ChatWriter, CompletionWriter, ResponseWriter
from metatemplate.values.events import Completion


async def respond(writer_class: type[ResponseWriter] | None, context: CallContext) -> None:
    """Prepare the call, open the backend and send the backend's answer.

    ``writer_class``: the writer of the answer; None if the endpoint does not answer with a completion.
    """
    call, route, timeline = context.call, context.route, context.timeline
    if call.turns is not None:
        assert writer_class is not None
        await turns.respond(writer_class, context)
        return
    prepared = await prepare(route, call)
    context.use(prepared)
    run = CallRun(route, prepared, timeline)
    if route.fallbacks and call.endpoint == "chat" and route.fallbacks_of(call.caller):
        run = FallbackRun(route, prepared, timeline, call)
    async with run as events:
        if run.route is not route:  # another model answers
            route, prepared = context.route, context.prepared = run.route, run.prepared
            context.call = call = replace(call, model=route.spec.name)
        if (replay := route.reasoning) is not None and timeline.delivered is None:
            timeline.delivered = []
        if call.stream:
            context.writer = writer = response_writer(writer_class, context, prepared)
            context.stream = events
            last = await _stream(context, events, writer)
        else:
            answer = await events.whole(keep_events=writer_class is not None and writer_class.needs_events)
    if replay is not None:  # before the end is sent, so that the next request finds it
        await replay.keep(call, timeline.delivered or ())
    # The body is written after the backend is closed, so that the explanation and the headers contain the same facts.
    if call.stream:
        context.sink.commit()
        context.sink.end(last + writer.end())
    elif isinstance(answer, Completion):
        context.reply(response_writer(writer_class, context, prepared).whole(answer))
    else:
        explained = {"gateway": explanation(route, prepared, timeline)} if call.explain else {}
        context.reply({**answer.body, "model": call.model, **explained})


respond_chat = partial(respond, ChatWriter)
respond_completion = partial(respond, CompletionWriter)
respond_embedding = partial(respond, None)


async def send_pending(context: CallContext) -> bytes:
    """Return the stream events for text that a failed stream has not sent yet. Start the stream if events exist."""
    if context.stream is None:
        return b""
    batch = await context.stream.take_pending()
    frames = context.writer.frames(batch)
    if frames:
        if not context.sink.status:
            context.sink.start_stream(context.headers())
        context.timeline.events_written(batch)
    return frames


async def _stream(context: CallContext, events: ResponseStream, writer: ResponseWriter) -> bytes:
    """Send a stream. Returns the last frames, which the caller sends together with the end of the stream."""
    sink, timeline, write_timeout = context.sink, context.timeline, context.route.spec.policy.delivery.timeout.idle
    while batch := await events.next_batch():
        frames, exhausted = writer.frames(batch), events.exhausted
        if (frames or exhausted) and not sink.status:
            # The head is sent with the first frame, so that an earlier failure can still get an error status.
            sink.start_stream(context.headers())
        if exhausted:
            timeline.events_written(batch)
            return frames
        if not frames:
            continue
        began = monotonic()
        try:
            await sink.write(frames, write_timeout)
        finally:
            timeline.client_wait += monotonic() - began
        timeline.events_written(batch)
        # From here on plain text is forwarded without waking this task. Any other event ends the forwarding.
        if events.can_forward and sink.can_try_write and (choice_frames := writer.choice_frames()):
            splice = TextSplice(sink.try_write, choice_frames)
            try:
                await events.forward_text(splice)
            finally:
                timeline.text_forwarded(splice.moments)
    return b""
