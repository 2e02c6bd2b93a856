"""The body of a successful response → events, whether it is JSON or a stream.

Servers send JSON for a stream or a wrong content type, so the body itself decides. A stream may end in these ways:

    ``[DONE]`` or end of body, every choice finished   normal
    ``[DONE]`` or end of body, a choice unfinished     UpstreamIncomplete
    connection lost, every choice finished             normal: only the counts may be missing
    connection lost, a choice unfinished               UpstreamDisconnected
    an error object, or ``event: error``               that error, mapped to the gateway's
    an event that cannot be read                       UpstreamInvalidStream

Nothing after ``[DONE]`` is read. The cases are in ``docs/spec/reliability.md`` 2.3, B and C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.backend.http_client.client import HttpEndpoint
from gateway.backend.http_client.connection import Connection
from gateway.backend.openai.answer.events import ChunkReader
from gateway.backend.openai.answer.fast_stream import SseSplicer
from gateway.backend.openai.error_mapping import error_in_body, not_json
from gateway.backend.openai.upstream_request import UpstreamRequest, read_body
from gateway.core.errors import (
    GatewayError,
    UpstreamDisconnected,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamInvalidStream,
)
from gateway.core.text_splice import TextSource, TextSplice
from gateway.stream.sse import SseParser
from gateway.stream.surrogates import loads, maybe_lone
from metatemplate.values import fast_paths
from metatemplate.values.events import Event
from metatemplate.values.json_values import MAX_DEPTH, count_brackets, deeper_than

EVENT_STREAM = "text/event-stream"
NOT_JSON = "the model's server sent an event that is not JSON"
STREAM_ERROR = "the model's server reported an error in its stream"
MAX_BLANK = 64 * 1024
"""The maximum number of blank bytes at the start of a body."""
MAX_CONTAINERS = 500_000
"""The maximum number of objects and lists in one JSON document. More would block the event loop for too long."""
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
_MIN_DETECT = 64
"""The number of bytes that are always enough to decide whether a body is a stream."""


class BodyEvents(UpstreamRequest):
    """A completion request and the events of its response. All events that arrived together are one batch."""

    __slots__ = ("_failure", "_last", "_parser", "_reader", "_splicer", "exhausted")

    def __init__(self, endpoint: HttpEndpoint, content: bytes, headers: str, target: str, reader: ChunkReader) -> None:
        """``reader``: reads the chunks of this response. For the other parameters see ``UpstreamRequest``."""
        # super().__init__() is not called, to save time in every call.
        self._endpoint = endpoint
        self._content = content
        self._headers = headers
        self._target = target
        self._reader = reader
        self._parser: SseParser | None = None
        """The parser of a stream; None until the body is known to be a stream."""
        self._last: tuple[bytes, Sequence[Event]] = (b"", ())
        """The data of the last event of the stream, and what was read from them."""
        self._splicer: SseSplicer | None = None
        self._failure: GatewayError | None = None
        """The error to raise after the events before the error have been returned."""
        self.exhausted = False
        """True: no events follow. See ``Events.exhausted``."""

    async def next_batch(self) -> Sequence[Event]:
        """Wait for the next events and return them. See ``Events.next_batch``."""
        events: list[Event] = []
        while not self.exhausted and self._failure is None:
            try:
                parser = self._parser
                if parser is None:
                    body = self._http.read_rest()
                    if body is not None and body.startswith(b"{"):
                        events = self._read_json(body)
                        self.exhausted = True
                    else:
                        await self._read_first(body, events)
                else:
                    try:
                        piece = await self._http.read()
                    except UpstreamDisconnected:
                        if not self._reader.finished:
                            raise
                        self._end(events)
                    else:
                        if piece:
                            self._read_piece(piece, parser, events)
                        else:
                            self._end_of_body(parser, events)
            except GatewayError as error:
                self._failure = error
                self.exhausted = False  # the failure is still to be raised
            if events:
                return events
        if self._failure is not None:
            raise self._failure
        return ()

    @property
    def text_source(self) -> TextSource | None:
        """This object. None if fast paths are off."""
        return self if fast_paths.ENABLED else None

    async def forward_text(self, splice: TextSplice) -> None:
        """Forward plain text of the stream to the client. See ``TextSource.forward_text``."""
        parser = self._parser
        if parser is None or not parser.idle or self.exhausted or self._failure is not None:
            return
        splicer = self._splicer
        if splicer is None:
            splicer = self._splicer = SseSplicer(self._reader.format)
        if splicer.begin(splice, *self._last):
            try:
                await self._http.forward(splicer.take)
            finally:
                splicer.end()

    async def _read_first(self, body: bytes | None, events: list[Event]) -> None:
        """Read until it is known whether the body is a stream. JSON is read to the end.

        ``body``: the whole body, if the end has arrived.
        """
        http = self._http
        first, ended = body or b"", body is not None
        stream = _is_stream(first, http, ended=True) if ended else None
        while stream is None:
            piece = await http.read()
            ended = not piece
            first = first + piece if first else piece
            stream = _is_stream(first, http, ended=ended)
            if stream is None and len(first) > MAX_BLANK:
                raise UpstreamInvalidResponse("the model's server sent only white space")
        if stream:
            self._parser = SseParser()
            self._read_piece(first, self._parser, events)
            if ended and not self.exhausted:
                self._end_of_body(self._parser, events)
            return
        if not ended:
            rest = http.read_rest()
            first = first + rest if rest is not None else await read_body(http, first=first)
        events += self._read_json(first)
        self.exhausted = True

    def _read_json(self, body: bytes) -> list[Event]:
        """Return the events of a response that is not a stream. Raises an error if the response is incomplete."""
        reader = self._reader
        reader.invalid = UpstreamInvalidResponse
        events = reader.read(parse_json(body, self._endpoint.private), surrogates=maybe_lone(body))
        if not reader.has_choices:
            raise UpstreamInvalidResponse("the model's server sent an answer without choices")
        events += reader.end()
        return events

    def _read_piece(self, data: bytes, parser: SseParser, events: list[Event]) -> None:
        for name, chunk in parser.feed(data):
            if _is_done(chunk):
                self._http.content_complete = True
                self._end(events)
                return
            read = self._read_event(name, chunk)
            events += read
            self._last = chunk, read

    def _end_of_body(self, parser: SseParser, events: list[Event]) -> None:
        for name, chunk in parser.close():
            if not _is_done(chunk):
                events += self._read_event(name, chunk)
        self._end(events)

    def _end(self, events: list[Event]) -> None:
        self.exhausted = True
        events += self._reader.end()

    def _read_event(self, name: str, data: bytes) -> list[Event]:
        if not data:
            return []
        try:
            chunk = loads(data)
        except ValueError:
            if name == "error":
                raise UpstreamError(STREAM_ERROR) from None
            raise UpstreamInvalidStream(NOT_JSON) from None
        _refuse_deep(count_brackets(data), chunk, UpstreamInvalidStream)
        if name == "error":  # an error, also if the data have another form
            error = error_in_body(chunk, self._endpoint.private) if isinstance(chunk, dict) else None
            raise error or UpstreamError(STREAM_ERROR)
        return self._reader.read(chunk, surrogates=maybe_lone(data))


def parse_json(body: bytes, private: tuple[str, ...]) -> Any:
    """Parse the JSON in a body. Raises ``UpstreamInvalidResponse`` if the JSON is invalid, too deep or too large.

    ``private``: see ``error_mapping.one_safe_line``.
    """
    brackets = count_brackets(body)
    if brackets > MAX_CONTAINERS:
        raise UpstreamInvalidResponse(f"the model's server sent JSON with more than {MAX_CONTAINERS} objects and lists")
    try:
        value = loads(body)
    except ValueError:
        raise not_json(body, private) from None
    _refuse_deep(brackets, value, UpstreamInvalidResponse)
    return value


def _refuse_deep(brackets: int, value: object, invalid: type[UpstreamError]) -> None:
    """Raise ``invalid`` for JSON nested deeper than ``MAX_DEPTH``. Such JSON has more than ``MAX_DEPTH`` brackets."""
    if brackets > MAX_DEPTH and deeper_than(value, MAX_DEPTH):
        raise invalid(f"the model's server sent JSON nested deeper than {MAX_DEPTH} levels")


def _is_stream(first: bytes, http: Connection, *, ended: bool) -> bool | None:
    """Return whether a body is a stream, by its first bytes or by the content type; None if more bytes are needed."""
    if first.startswith(b"data:"):
        return True
    head = first.lstrip(_BLANKS)
    if head[:1] in (b"{", b"["):
        return False
    if (head or ended) and http.content_type == EVENT_STREAM:
        return True
    if len(head) < _MIN_DETECT and not ended:
        return None
    return head.startswith(_SSE_STARTS)


def _is_done(data: bytes) -> bool:
    return len(data) < 16 and data.strip() == b"[DONE]"
