"""An incremental parser of ``text/event-stream``, after the grammar of the HTML standard (section 9.2.6).

Bytes may arrive in pieces of any length. Lines end with LF, CR or CRLF. A BOM at the start, comments, ``data:``
without a space and several data lines are accepted. ``id``, ``retry`` and unknown fields are ignored. So that no text
is lost, the parser differs from the standard in two points (``docs/spec/reliability.md`` C11, C14). An event that lacks
only its blank line is delivered at the end of the stream. Invalid UTF-8 in data is an error.

The work is linear, because the pieces of an unfinished line are joined only once, when the line ends.
"""

from __future__ import annotations

from gateway.core.errors import UpstreamInvalidStream

BOM = b"\xef\xbb\xbf"
MAX_EVENT = 1024 * 1024


SseEvent = tuple[str, bytes]
"""The name of an event, and its data: the data lines, joined by LF. The name is ``message`` if the stream gives none.

The data are not decoded, because the JSON parser reads bytes; they are valid UTF-8, and possibly empty.
"""


class SseParser:
    """Turns the bytes of a stream into events.

    ``max_event``: maximum bytes in the data of one event and in one line, which also limits the memory. For invalid
    bytes, ``feed`` raises ``UpstreamInvalidStream``. If complete events come before the invalid bytes, ``feed`` returns
    these events first, and the next call raises the error. Every later call raises the error again.
    """

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._max_line = max_event + len(b"data: ")
        self._head: bytes | None = b""
        """The first bytes of the stream, while these may become a BOM; otherwise None."""
        self._line: list[bytes] = []
        """The pieces of an unfinished line."""
        self._line_size = 0
        self._after_cr = False
        """True: the last byte was a CR, so a following LF belongs to the same line end."""
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = ""
        self._fault: UpstreamInvalidStream | None = None

    def feed(self, data: bytes) -> list[SseEvent]:
        """Add bytes. Returns the events that are now complete."""
        events: list[SseEvent] = []
        try:
            if self._fault is not None:
                raise self._fault
            self._read(data, events)
        except UpstreamInvalidStream as fault:
            self._fault = fault
            if not events:
                raise
        return events

    @property
    def idle(self) -> bool:
        """True: the parser holds no part of an event, and there was no fault."""
        held = self._line or self._data or self._event or self._head or self._after_cr
        return not held and self._fault is None

    def close(self) -> list[SseEvent]:
        """Return the last event if only its line ends are missing. Call only if the connection ended regularly."""
        if self._fault is not None:
            raise self._fault
        events: list[SseEvent] = []
        if self._line:
            self._take_line(b"".join(self._line))
            self._line, self._line_size = [], 0
        self._dispatch(events)
        return events

    def _read(self, data: bytes, events: list[SseEvent]) -> None:
        if self._head is not None:
            data = self._head + data
            if len(data) < len(BOM) and BOM.startswith(data):
                self._head = data
                return
            self._head = None
            data = data.removeprefix(BOM)
        if not data:
            return
        if self._after_cr and data[0] == 0x0A:
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        lines = data.splitlines()  # ``splitlines`` of bytes splits only at LF, CR and CRLF
        unfinished = lines.pop() if lines and not data.endswith((b"\n", b"\r")) else b""
        if lines and self._line:
            lines[0] = b"".join([*self._line, lines[0]])
            self._line, self._line_size = [], 0
        for line in lines:
            if line:
                self._take_line(line)
            else:
                self._dispatch(events)
        if unfinished:
            self._line.append(unfinished)
            self._line_size += len(unfinished)
            if self._line_size > self._max_line:
                raise self._too_large()

    def _take_line(self, line: bytes) -> None:
        if len(line) > self._max_line:
            raise self._too_large()
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data_size += len(value) + bool(self._data)
            if self._data_size > self._max_event:
                raise self._too_large()
            self._data.append(value)
        elif name == b"event":
            self._event = _decoded(value.removeprefix(b" "))

    def _dispatch(self, events: list[SseEvent]) -> None:
        """End the event at a blank line. An event without data lines is dropped."""
        if self._data:
            data = b"\n".join(self._data)
            if not data.isascii():
                _decoded(data)
            events.append((self._event or "message", data))
            self._data, self._data_size = [], 0
        self._event = ""

    def _too_large(self) -> UpstreamInvalidStream:
        return UpstreamInvalidStream(
            f"the model's server sent an event or a line of more than {self._max_event} bytes; "
            "check the server, and proxies between it and the gateway"
        )


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UpstreamInvalidStream("the model's server sent an event that is not valid UTF-8") from None
