"""An incremental parser of ``text/event-stream``, after the grammar of the HTML standard (section 9.2.6).

Bytes may be sliced anywhere. Line ends are LF, CR or CRLF; a BOM at the start, comments, ``data:`` without a space and
several data lines are accepted; ``id``, ``retry`` and unknown fields are ignored. There are two departures, so that no
text is lost (``docs/spec/reliability.md`` C11, C14): an event that lacks only its blank line is delivered at the end of
the stream, and invalid UTF-8 in data is an error.

The work is linear: an unfinished line is kept in pieces and joined once, when its end arrives.
"""

from __future__ import annotations

from gateway.core import fast_paths
from gateway.core.errors import UpstreamInvalidStream
from gateway.core.frozen import dataclass

BOM = b"\xef\xbb\xbf"
MAX_EVENT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event; ``data`` stays bytes, because the JSON reader takes bytes."""

    event: str
    """``message`` when the stream gives no name."""
    data: bytes
    """Valid UTF-8; data lines are joined by LF. May be empty."""


class SseParser:
    """Bytes in, events out.

    ``max_event`` bounds the data of one event and the length of one line, in bytes, and so the memory held. A fault
    raises ``UpstreamInvalidStream``: at once if the same bytes held no whole event before it, else on the next call, so
    that good events are not lost. Every later call raises it again.
    """

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._max_line = max_event + len(b"data: ")
        self._head: bytes | None = b""
        """Bytes that may still become a BOM; None once that is decided."""
        self._line: list[bytes] = []
        """The pieces of an unfinished line."""
        self._line_size = 0
        self._after_cr = False
        """The last byte was a CR: a LF that follows belongs to the same line end."""
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = ""
        self._fault: UpstreamInvalidStream | None = None

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that these bytes complete."""
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

    def fast_feed(self, data: bytes) -> list[bytes] | None:
        """The data of the events that ``feed`` would return, if all are whole, unnamed and of one ``data: `` line.

        None, and nothing done, for all other bytes.
        """
        if not fast_paths.ENABLED or not data.startswith(b"data: ") or not data.endswith(b"\n\n") or b"\r" in data:
            return None
        if not self.idle or len(data) > self._max_event or not (data.isascii() or _is_utf8(data)):
            return None
        events = data[6:-2].split(b"\n\ndata: ")
        if data.count(b"\n") != 2 * len(events) or not all(events):
            return None
        self._head = None
        return events

    @property
    def idle(self) -> bool:
        """True: no part of an event is held, and there was no fault."""
        held = self._line or self._data or self._event or self._head or self._after_cr
        return not held and self._fault is None

    def close(self) -> list[SseEvent]:
        """The last event, if it lacks only its line ends. Call at a regular end, not after a broken connection."""
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
        lines = data.splitlines()  # of bytes: at LF, CR and CRLF only
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
        """A blank line ends an event, unless there was no data line."""
        if self._data:
            data = b"\n".join(self._data)
            if not data.isascii():
                _decoded(data)
            events.append(SseEvent(self._event or "message", data))
            self._data, self._data_size = [], 0
        self._event = ""

    def _too_large(self) -> UpstreamInvalidStream:
        return UpstreamInvalidStream(
            f"the model's server sent an event or a line of more than {self._max_event} bytes; "
            "check the server, and proxies between it and the gateway"
        )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UpstreamInvalidStream("the model's server sent an event that is not valid UTF-8") from None
