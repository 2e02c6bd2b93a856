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

from collections.abc import Sequence
from typing import Any

import orjson

from gateway.backend.http_client.client import H1Target
from gateway.backend.http_client.connection import Connection
from gateway.backend.openai.error_mapping import error_in_body
from gateway.backend.openai.events import Answer, Shape
from gateway.backend.openai.fast_completion import ordinary_whole
from gateway.backend.openai.fast_stream import Sample, SseSplicer
from gateway.backend.openai.upstream_request import UpstreamRequest, read_whole
from gateway.core.errors import (
    GatewayError,
    UpstreamDisconnected,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamInvalidStream,
)
from gateway.core.events import Delta, Event
from gateway.core.json_depth import MAX_DEPTH, deeper_than
from gateway.core.text_splice import TextSplice
from gateway.stream.sse import SseEvent, SseParser
from gateway.stream.surrogates import loads, maybe_lone

EVENT_STREAM = "text/event-stream"
_BLANK = b"\xef\xbb\xbf \t\r\n"
_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
NOT_JSON = "the model's server sent an event that is not JSON"
STREAM_ERROR = "the model's server reported an error in its stream"
MAX_BLANK = 64 * 1024
"""Bytes without any content that an answer may begin with."""
MAX_SAMPLE = 4096
"""Bytes of an event that is kept as an example."""
_PEEK = 64
"""Bytes that are looked at where neither the first one nor the content type decides."""


class BodyEvents(UpstreamRequest):
    """A request for a completion, and the events of a successful reply, be it JSON or a stream.

    One object and no layers: everything that has arrived is turned into one batch.
    """

    __slots__ = ("_answer", "_asked", "_failure", "_notices", "_parser", "_sample", "_shape", "exhausted")

    def __init__(
        self,
        way: H1Target,
        content: bytes,
        request_id: str,
        shape: Shape,
        target: str,
        asked: int,
        notices: tuple[str, ...],
    ) -> None:
        """See ``UpstreamRequest``, then ``Answer``."""
        self._way = way
        self._content = content
        self._request_id = request_id
        self._shape = shape
        self._target = target
        self._asked = asked
        self._notices = notices
        self._answer: Answer
        """Made where it is needed: an ordinary whole answer needs none."""
        self._parser: SseParser | None = None
        """Set once it is clear that this is a stream."""
        self._sample: Sample | None = None
        """The first event with text that was read in full: those that follow look like it, if it names no role."""
        self._failure: GatewayError | None = None
        """Raised once everything before it has been handed out."""
        self.exhausted = False
        """See ``Events``."""

    async def next_batch(self) -> Sequence[Event]:
        """See ``Events``."""
        events: list[Event] = []
        while not self.exhausted and self._failure is None:
            try:
                parser = self._parser
                if parser is None:
                    body = self._http.whole()
                    if body is not None and body.startswith(b"{"):
                        events = self._told_whole(body)
                        self.exhausted = True
                    else:
                        await self._begin(body, events)
                else:
                    try:
                        piece = await self._http.more()
                    except UpstreamDisconnected:
                        if not self._answer.finished:
                            raise
                        self._close(events)
                    else:
                        if piece:
                            self._take(piece, parser, events)
                        else:
                            self._end_of_stream(parser, events)
            except GatewayError as error:
                self._failure = error
                self.exhausted = False  # there is this to tell
            if events:
                return events
        if self._failure is not None:
            raise self._failure
        return ()

    async def forward_text(self, passage: TextSplice) -> None:
        """See ``Events``."""
        parser = self._parser
        if parser is not None and parser.idle and not self.exhausted and self._failure is None:
            await self._http.flow(SseSplicer(self._answer, parser, passage, self._sample).take)

    async def _begin(self, body: bytes | None, events: list[Event]) -> None:
        """Find out which of the two it is; a whole answer is read to its end. ``body``: all of it, if it is here."""
        http = self._http
        ahead, ended = body or b"", body is not None
        stream = _is_stream(ahead, http, ended=True) if ended else None
        while stream is None:
            piece = await http.more()
            ended = not piece
            ahead = ahead + piece if ahead else piece
            stream = _is_stream(ahead, http, ended=ended)
            if stream is None and len(ahead) > MAX_BLANK:
                raise UpstreamInvalidResponse("the model's server sent nothing but blanks")
        if stream:
            self._answer = Answer(self._shape, self._target, self._asked, self._notices, self._way.private)
            self._parser = SseParser()
            self._take(ahead, self._parser, events)
            if ended and not self.exhausted:
                self._end_of_stream(self._parser, events)
            return
        if not ended:
            rest = http.whole()
            ahead = ahead + rest if rest is not None else await read_whole(http, ahead=ahead)
        events += self._told_whole(ahead)
        self.exhausted = True

    def _told_whole(self, body: bytes) -> list[Event]:
        """The events of an answer in one piece; one that is not whole says nothing."""
        try:
            said = orjson.loads(body)
        except ValueError:
            said = parse_json(body)
        else:
            events = ordinary_whole(said, self._shape, self._target, self._notices)
            if events is not None:
                return events
            _refuse_deep(body, said, UpstreamInvalidResponse)
        answer = Answer(self._shape, self._target, self._asked, self._notices, self._way.private)
        answer.invalid = UpstreamInvalidResponse
        told = answer.take(said, odd=maybe_lone(body))
        if not answer.begun_choices:
            raise UpstreamInvalidResponse("the model's server sent an answer without choices")
        return [*told, *answer.end()]

    def _take(self, data: bytes, parser: SseParser, events: list[Event]) -> None:
        answer = self._answer
        plain = None if maybe_lone(data) else parser.plain(data)
        if plain is None:
            for sse in parser.feed(data):
                if _is_done(sse.data):
                    self._done(events)
                    return
                events += self._read_event(sse, answer)
            return
        for said in plain:
            if len(said) < 16 and _is_done(said):
                self._done(events)
                return
            try:
                chunk = orjson.loads(said)
            except ValueError:
                raise UpstreamInvalidStream(NOT_JSON) from None
            delta = answer.ordinary(chunk) if answer.begun else None
            if delta is not None:
                events.append(delta)
            else:
                _refuse_deep(said, chunk, UpstreamInvalidStream)
                events += answer.take(chunk)
            if self._sample is None and len(plain) == 1 and len(data) < MAX_SAMPLE and b'"role"' not in data:
                last = events[-1] if events else None
                if type(last) is Delta and last.text:
                    self._sample = data, last

    def _done(self, events: list[Event]) -> None:
        self._http.complete = True
        self._close(events)

    def _end_of_stream(self, parser: SseParser, events: list[Event]) -> None:
        for sse in parser.close():
            if not _is_done(sse.data):
                events += self._read_event(sse, self._answer)
        self._close(events)

    def _close(self, events: list[Event]) -> None:
        self.exhausted = True
        events += self._answer.end()

    def _read_event(self, sse: SseEvent, answer: Answer) -> list[Event]:
        if not sse.data:
            return []
        try:
            chunk = loads(sse.data)
        except ValueError:
            if sse.event == "error":
                raise UpstreamError(STREAM_ERROR) from None
            raise UpstreamInvalidStream(NOT_JSON) from None
        _refuse_deep(sse.data, chunk, UpstreamInvalidStream)
        if sse.event == "error":  # an error with any data, even where the data does not look like one
            told = error_in_body(chunk, self._way.private) if isinstance(chunk, dict) else None
            raise told or UpstreamError(STREAM_ERROR)
        return answer.take(chunk, odd=maybe_lone(sse.data))


def parse_json(body: bytes) -> Any:
    """The JSON in a body; ``UpstreamInvalidResponse`` when there is none, or it nests too deeply."""
    try:
        value = loads(body)
    except ValueError:
        raise UpstreamInvalidResponse("the model's server answered with something that is not JSON") from None
    _refuse_deep(body, value, UpstreamInvalidResponse)
    return value


def _refuse_deep(data: bytes, value: object, invalid: type[UpstreamError]) -> None:
    """Raise ``invalid`` for JSON that nests deeper than ``MAX_DEPTH``; only ``data`` with as many brackets can."""
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and deeper_than(value, MAX_DEPTH):
        raise invalid(f"the model's server sent JSON that nests deeper than {MAX_DEPTH} levels")


def _is_stream(ahead: bytes, http: Connection, *, ended: bool) -> bool | None:
    """What the body looks like decides; the content type only where the looks do not. None: too early to tell."""
    if ahead.startswith(b"data:"):
        return True
    head = ahead.lstrip(_BLANK)
    if head[:1] in (b"{", b"["):
        return False
    if (head or ended) and http.content_type == EVENT_STREAM:
        return True
    if len(head) < _PEEK and not ended:
        return None
    return head.startswith(_SSE_STARTS)


def _is_done(data: bytes) -> bool:
    return len(data) < 16 and data.strip() == b"[DONE]"
