"""The header fields of one response, parsed in a second pass over the response head.

For most responses the gateway reads no header (``Connection.is_plain_success``), so ``Connection`` collects none.
"""

from __future__ import annotations

from functools import lru_cache

import httptools

MAX_HEADER_LINE = 8190
"""The maximum size of a status line, and of one header field, in bytes."""
MAX_HEADERS = 256
HTTP_FAULTS = (httptools.HttpParserError, httptools.HttpParserUpgrade)
"""The errors that llhttp raises for bytes that are not a response to a POST."""

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
"""The headers that define where a body ends."""


@lru_cache(maxsize=256)
def media_type(value: str) -> str:
    """Return a content type without its parameters, in lower case."""
    return value.partition(";")[0].strip().lower()


class ResponseHeaders:
    """The header fields of one response, without the fields of interim responses."""

    __slots__ = ("_complete", "_fields", "_parser", "is_excessive")

    def __init__(self, head: bytes) -> None:
        """``head`` begins with a response head that llhttp has accepted; more bytes may follow."""
        self._fields: list[tuple[bytes, bytes]] = []
        self._complete = False
        self.is_excessive = False
        """True: there are more than ``MAX_HEADERS`` fields, or a field is longer than ``MAX_HEADER_LINE``."""
        self._parser = httptools.HttpResponseParser(self)
        try:
            self._parser.feed_data(head)
        except HTTP_FAULTS:
            assert self._complete  # an error in the bytes after the head, which the connection reports

    def get(self, name: str) -> str | None:
        """Return the first value of a header; None if the header is missing. ``name`` is in lower case."""
        wanted = name.encode("ascii")
        for key, value in self._fields:
            if key.lower() == wanted:
                return value.decode("latin-1")
        return None

    def items(self) -> list[tuple[str, str]]:
        """Return all header fields in order. The names are in lower case."""
        return [(name.lower().decode("latin-1"), value.decode("latin-1")) for name, value in self._fields]

    @property
    def is_delimited(self) -> bool:
        """True: the headers define where the body ends. False: the body ends when the connection ends."""
        return any(name.lower() in _FRAMING for name, _ in self._fields)

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp calls this for each header field."""
        if not self._complete:
            if len(self._fields) >= MAX_HEADERS or len(name) + len(value) > MAX_HEADER_LINE:
                self.is_excessive = True
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """llhttp calls this when the headers of one response, interim or final, are complete."""
        if not self._complete:
            self._complete = not 100 <= self._parser.get_status_code() < 200
            if not self._complete:
                self._fields.clear()
