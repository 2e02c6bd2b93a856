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

from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

from gateway.backend.answers import Answer, read_usage
from gateway.backend.http import HttpAnswer, read_whole
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


class BodyEvents:
    """The events of a successful reply, be it JSON or a stream.

    One object and no layers: everything that has arrived is turned into events at once, and handed out one by one.
    """

    __slots__ = ("_ahead", "_answer", "_failure", "_http", "_over", "_parser", "_ready")

    def __init__(self, http: HttpAnswer, answer: Answer) -> None:
        self._http = http
        self._answer = answer
        self._ahead = b""
        """What was read before it was clear whether this is a stream."""
        self._parser: SseParser | None = None
        self._ready: deque[Event] = deque()
        self._failure: GatewayError | None = None
        """Raised once everything before it has been handed out."""
        self._over = False

    def __aiter__(self) -> BodyEvents:
        return self

    async def __anext__(self) -> Event:
        while not self._ready:
            if self._failure is not None:
                raise self._failure
            if self._over:
                raise StopAsyncIteration
            try:
                await (self._read_stream() if self._parser is not None else self._begin())
            except GatewayError as error:
                self._failure, self._over = error, True
        return self._ready.popleft()

    async def _begin(self) -> None:
        """Find out which of the two it is; a whole answer is read to its end."""
        piece = await self._http.more()
        self._ahead += piece
        kind = _is_stream(self._ahead, self._http.content_type, ended=not piece)
        if kind is None:
            return
        if kind:
            self._parser = SseParser()
            self._take(self._ahead)
            if not piece:
                self._end_of_stream()
            return
        self._answer.invalid = UpstreamInvalidResponse
        body = await read_whole(self._http, ahead=self._ahead) if piece else self._ahead
        events = self._answer.take(parse_json(body), odd=_maybe_odd(body))
        if not self._answer.begun_choices:
            raise UpstreamInvalidResponse("the model's server sent an answer without choices")
        self._ready.extend(events + self._answer.end())
        self._over = True

    async def _read_stream(self) -> None:
        try:
            piece = await self._http.more()
        except UpstreamDisconnected:
            if not self._answer.finished:
                raise
            self._close()
            return
        if piece:
            self._take(piece)
        else:
            self._end_of_stream()

    def _take(self, data: bytes) -> None:
        assert self._parser is not None
        for sse in self._parser.feed(data):
            if _is_done(sse):
                self._http.complete = True
                self._close()
                return
            self._ready.extend(_read_event(sse, self._answer))

    def _end_of_stream(self) -> None:
        assert self._parser is not None
        for sse in self._parser.close():
            if not _is_done(sse):
                self._ready.extend(_read_event(sse, self._answer))
        self._close()

    def _close(self) -> None:
        self._over = True
        self._ready.extend(self._answer.end())


async def read_document(http: HttpAnswer, target: str) -> AsyncGenerator[Event, None]:
    """The events of an answer that is no completion: embeddings."""
    body = parse_json(await read_whole(http))
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


def _is_stream(ahead: bytes, content_type: str, *, ended: bool) -> bool | None:
    """What the body looks like decides; the content type only where the looks do not. None: too early to tell."""
    head = ahead.lstrip(_BLANK)
    if head[:1] in (b"{", b"["):
        return False
    if content_type == EVENT_STREAM and (head or ended):
        return True
    if len(head) < _PEEK and not ended:
        return None
    return head.startswith(_SSE_STARTS)


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
