"""How does a body become an answer? As JSON or as a stream, whatever was asked for and whatever it is called.

Servers mislabel both (row B21), so the body itself is looked at. A stream may end in these ways:

    ``[DONE]`` or end of body, every choice finished   normal
    ``[DONE]`` or end of body, a choice unfinished     UpstreamIncomplete (C05, C06)
    connection lost, every choice finished             normal: only the count may be missing
    connection lost, a choice unfinished               UpstreamDisconnected (C01, C02)
    an error object, or ``event: error``               that error under our own name (C08)
    an event that cannot be read                       UpstreamInvalidStream (C09)

What follows ``[DONE]`` is not read (C07).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from gateway.backend.answers import Answer, read_usage
from gateway.backend.http import HttpAnswer
from gateway.backend.statuses import error_in_body
from gateway.core.errors import (
    GatewayError,
    UpstreamDisconnected,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamInvalidStream,
)
from gateway.core.events import Begun, Document, Event
from gateway.stream.sse import SseEvent, SseParser
from gateway.stream.surrogates import loads

EVENT_STREAM = "text/event-stream"
_BLANK = b"\xef\xbb\xbf \t\r\n"
_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
_PEEK = 64
"""Bytes that are looked at where neither the first one nor the content type decides."""


async def read_events(http: HttpAnswer, answer: Answer) -> AsyncGenerator[Event, None]:
    """The events of a successful reply, be it JSON or a stream."""
    if await _is_stream(http):
        async with aclosing(_read_stream(http, answer)) as stream:
            async for event in stream:
                yield event
    else:
        answer.invalid = UpstreamInvalidResponse
        body = await http.read()
        events = answer.take(parse_json(body), odd=_maybe_odd(body))
        if not answer.begun_choices:
            raise UpstreamInvalidResponse("the model's server sent an answer without choices")
        for event in events + answer.end():
            yield event


async def read_document(http: HttpAnswer, target: str) -> AsyncGenerator[Event, None]:
    """The events of an answer that is no completion: embeddings."""
    body = parse_json(await http.read())
    if not isinstance(body, dict):
        raise UpstreamInvalidResponse("the model's server sent JSON that is not an object")
    if (error := error_in_body(body)) is not None:
        raise error
    if not isinstance(body.get("data"), list):
        raise UpstreamInvalidResponse("the model's server sent an answer without data")
    yield Begun(target)
    yield Document(body)
    if (usage := read_usage(body.get("usage"))) is not None:
        yield usage


def parse_json(body: bytes) -> Any:
    """The JSON in a body; ``UpstreamInvalidResponse`` when there is none."""
    try:
        return loads(body)
    except ValueError:
        raise UpstreamInvalidResponse("the model's server answered with something that is not JSON") from None


async def _is_stream(http: HttpAnswer) -> bool:
    """What the body looks like decides; the content type only where the looks do not."""
    head = (await http.peek(1)).lstrip(_BLANK)
    if head[:1] in (b"{", b"["):
        return False
    if http.content_type == EVENT_STREAM:
        return True
    if len(head) < _PEEK:
        head = (await http.peek(_PEEK)).lstrip(_BLANK)
    return head.startswith(_SSE_STARTS)


async def _read_stream(http: HttpAnswer, answer: Answer) -> AsyncGenerator[Event, None]:
    parser = SseParser()
    try:
        async with aclosing(http.chunks()) as chunks:
            async for chunk in chunks:
                for sse in parser.feed(chunk):
                    if _is_done(sse):
                        http.complete = True
                        for event in answer.end():
                            yield event
                        return
                    for event in _read_event(sse, answer):
                        yield event
    except UpstreamDisconnected:
        if not answer.finished:
            raise
    else:
        for sse in parser.close():
            if not _is_done(sse):
                for event in _read_event(sse, answer):
                    yield event
    for event in answer.end():
        yield event


def _is_done(sse: SseEvent) -> bool:
    return len(sse.data) < 16 and sse.data.strip() == b"[DONE]"


def _read_event(sse: SseEvent, answer: Answer) -> list[Event]:
    if not sse.data:
        return []
    try:
        chunk = loads(sse.data)
    except ValueError:
        if sse.event == "error":
            raise UpstreamError("the model's server reported an error in its stream") from None
        raise UpstreamInvalidStream("the model's server sent an event that is not JSON") from None
    if sse.event == "error":
        raise _stream_error(chunk)
    return answer.take(chunk, odd=_maybe_odd(sse.data))


def _stream_error(chunk: object) -> GatewayError:
    """``event: error`` with any data is an error, even where the data does not look like one."""
    told = error_in_body(chunk) if isinstance(chunk, dict) else None
    return told or UpstreamError("the model's server reported an error in its stream")


def _maybe_odd(data: bytes) -> bool:
    return b"\\ud" in data or b"\\uD" in data
