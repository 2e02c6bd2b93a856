"""What do the headers of an answer say? Read once more from its head, by whoever has to know.

Of nearly every answer it is enough to know that nothing in its head forbids to read on; so headers are no concern
of ``connection.py`` while it listens.
"""

from __future__ import annotations

from functools import lru_cache

import httptools

MAX_LINE = 8190
"""Bytes of a status line, and of one header field."""
MAX_HEADERS = 256
HTTP_FAULTS = (httptools.HttpParserError, httptools.HttpParserUpgrade)
"""What llhttp raises for bytes that are no answer to a POST."""

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
"""The headers that tell where a body ends."""


@lru_cache(maxsize=256)
def media_type(value: str) -> str:
    """A content type without its parameters, lower case."""
    return value.partition(";")[0].strip().lower()


class Fields:
    """The header fields of one answer; those of interim answers before it are no part of them."""

    __slots__ = ("_complete", "_fields", "_parser", "excessive")

    def __init__(self, head: bytes) -> None:
        """``head`` is what llhttp has found to be a head; more may follow in it."""
        self._fields: list[tuple[bytes, bytes]] = []
        self._complete = False
        self.excessive = False
        """More headers, or a longer one, than we take."""
        self._parser = httptools.HttpResponseParser(self)
        try:
            self._parser.feed_data(head)
        except HTTP_FAULTS:
            assert self._complete  # a fault in what follows, of which the connection knows

    def get(self, name: str) -> str | None:
        """The first value of a header; ``name`` is in lower case."""
        wanted = name.encode("ascii")
        for key, value in self._fields:
            if key.lower() == wanted:
                return value.decode("latin-1")
        return None

    @property
    def sized(self) -> bool:
        """Can the end of the body be known without the end of the connection?"""
        return any(name.lower() in _FRAMING for name, _ in self._fields)

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp: one header field."""
        if not self._complete:
            if len(self._fields) >= MAX_HEADERS or len(name) + len(value) > MAX_LINE:
                self.excessive = True
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """llhttp: the headers of one answer, interim or not."""
        if not self._complete:
            self._complete = not 100 <= self._parser.get_status_code() < 200
            if not self._complete:
                self._fields.clear()
