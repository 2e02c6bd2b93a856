"""The header fields of one response, parsed a second time from its head.

Most responses need no header at all (``Connection.is_plain_success``), so ``Connection`` does not collect them.
"""

from __future__ import annotations

from functools import lru_cache

import httptools

MAX_LINE = 8190
"""Bytes of a status line, and of one header field."""
MAX_HEADERS = 256
HTTP_FAULTS = (httptools.HttpParserError, httptools.HttpParserUpgrade)
"""Errors of llhttp for bytes that are not a response to a POST."""

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
"""The headers that define where a body ends."""


@lru_cache(maxsize=256)
def media_type(value: str) -> str:
    """A content type without its parameters, in lower case."""
    return value.partition(";")[0].strip().lower()


class ResponseHeaders:
    """The header fields of one response, without those of interim responses before it."""

    __slots__ = ("_complete", "_fields", "_parser", "is_excessive")

    def __init__(self, head: bytes) -> None:
        """``head`` is a head that llhttp has accepted; more bytes may follow in it."""
        self._fields: list[tuple[bytes, bytes]] = []
        self._complete = False
        self.is_excessive = False
        """More than ``MAX_HEADERS`` fields, or a field longer than ``MAX_LINE``."""
        self._parser = httptools.HttpResponseParser(self)
        try:
            self._parser.feed_data(head)
        except HTTP_FAULTS:
            assert self._complete  # a fault in the bytes behind the head, which the connection reports

    def get(self, name: str) -> str | None:
        """The first value of a header; ``name`` is in lower case."""
        wanted = name.encode("ascii")
        for key, value in self._fields:
            if key.lower() == wanted:
                return value.decode("latin-1")
        return None

    @property
    def is_delimited(self) -> bool:
        """The end of the body is known without the end of the connection."""
        return any(name.lower() in _FRAMING for name, _ in self._fields)

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp: one header field."""
        if not self._complete:
            if len(self._fields) >= MAX_HEADERS or len(name) + len(value) > MAX_LINE:
                self.is_excessive = True
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """llhttp: the headers of one response, interim or final, are complete."""
        if not self._complete:
            self._complete = not 100 <= self._parser.get_status_code() < 200
            if not self._complete:
                self._fields.clear()
