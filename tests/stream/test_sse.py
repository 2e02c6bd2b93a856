"""The event-stream reader: one outcome, however the bytes are sliced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import UpstreamInvalidStream
from gateway.stream.sse import SseEvent, SseParser
from tests.stream.slicing import sliced, slicings

A, B = ("message", b'{"t":"a"}'), ("message", b'{"t":"b"}')

STREAMS = {  # name: (bytes, events)
    "plain": (b'data: {"t":"a"}\n\ndata: {"t":"b"}\n\n', [A, B]),
    "no space after the colon": (b'data:{"t":"a"}\n\n', [A]),
    "only one space is taken": (b"data:  x\n\n", [("message", b" x")]),
    "CRLF": (b'data: {"t":"a"}\r\n\r\ndata: {"t":"b"}\r\n\r\n', [A, B]),
    "bare CR": (b'data: {"t":"a"}\r\rdata: {"t":"b"}\r\r', [A, B]),
    "mixed line ends": (b'data: {"t":"a"}\r\n\ndata: {"t":"b"}\n\r', [A, B]),
    "CR then LF is one line end": (b"data: x\r\ndata: y\r\n\r\n", [("message", b"x\ny")]),
    "several data lines": (b'data: {"t":\ndata: "a"}\n\n', [("message", b'{"t":\n"a"}')]),
    "BOM at the start": (b'\xef\xbb\xbfdata: {"t":"a"}\n\n', [A]),
    "a second BOM is part of a field name": (b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", []),
    "BOM only": (b"\xef\xbb\xbf", []),
    "half a BOM": (b"\xef\xbb", []),
    "comments and pings": (b': hi\n\n: ping\ndata: {"t":"a"}\n:\n\n:\n\n', [A]),
    "id, retry and unknown fields": (b'id: 1\nretry: 5\nfoo: bar\ndata: {"t":"a"}\n\n', [A]),
    "garbage without a colon is a field name": (b'<html>\ndata: {"t":"a"}\ngarbage\n\n', [A]),
    "a name that begins like data": (b"database: x\ndat: y\n\n", []),
    "named event": (b"event: error\ndata: x\n\ndata: y\n\n", [("error", b"x"), ("message", b"y")]),
    "an event without data does not exist": (b"event: ping\n\ndata: x\n\n", [("message", b"x")]),
    "empty data": (b"data:\n\ndata\n\n", [("message", b""), ("message", b"")]),
    "empty lines of data": (b"data\ndata:\n\n", [("message", b"\n")]),
    "no final blank line": (b'data: {"t":"a"}\n\ndata: {"t":"b"}\n', [A, B]),
    "no final line end": (b'data: {"t":"a"}\n\ndata: {"t":"b"}', [A, B]),
    "a colon in the data": (b"data: a: b:c\n\n", [("message", b"a: b:c")]),
    "multi-byte characters": ("data: 脷😀é\n\n".encode(), [("message", "脷😀é".encode())]),
    "unicode line ends are text": ("data: a\u2028b\x0bc\n\n".encode(), [("message", "a\u2028b\x0bc".encode())]),
    "many blank lines": (b"\n\n\r\n\r\rdata: x\n\n\n\n", [("message", b"x")]),
    "done": (b'data: {"t":"a"}\n\ndata: [DONE]\n\n', [A, ("message", b"[DONE]")]),
    "nothing": (b"", []),
}


def read(parts: list[bytes]) -> list[SseEvent]:
    parser = SseParser()
    return [event for part in parts for event in parser.feed(part)] + parser.close()


@pytest.mark.parametrize(("stream", "events"), STREAMS.values(), ids=STREAMS.keys())
def test_every_slicing_gives_the_same_events(stream: bytes, events: list[SseEvent]) -> None:
    for parts in slicings(stream):
        assert read(parts) == events, parts


@given(st.data())
def test_random_slicings_of_all_streams_in_a_row_change_nothing(data: st.DataObject) -> None:
    names = [name for name in STREAMS if "BOM" not in name and "no final" not in name]
    chosen = data.draw(st.lists(st.sampled_from(names), max_size=6))
    stream = b"".join(STREAMS[name][0] for name in chosen)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted))
    assert read(sliced(stream, places)) == [event for name in chosen for event in STREAMS[name][1]]


@given(st.lists(st.binary(max_size=12)))
def test_any_bytes_are_either_read_or_refused(parts: list[bytes]) -> None:
    def outcome(parts: list[bytes]) -> tuple[list[SseEvent], bool]:
        parser, events = SseParser(), []
        try:
            for part in parts:
                events += parser.feed(part)
            events += parser.close()
        except UpstreamInvalidStream:
            return events, True
        return events, False

    assert outcome(parts) == outcome([b"".join(parts)])


def test_an_event_is_out_as_soon_as_its_blank_line_is_there() -> None:
    parser = SseParser()
    assert parser.feed(b'data: {"t":"a"}\r\n\r') == [A]
    assert parser.feed(b'\ndata: {"t":"b"}\n') == []
    assert parser.feed(b"\n") == [B]
    assert parser.close() == []


FAULTS = {  # name: bytes after one good event, with max_event=32
    "invalid UTF-8 in data": b"data: \xff\xfe\n\n",
    "half a character in data": b"data: \xe8\x84\n\n",
    "invalid UTF-8 in the event name": b"event: \xff\n\n",
    "a line without end": b"x" * 39,
    "a data line too long": b"data: " + b"x" * 33 + b"\n\n",
    "a comment too long": b":" + b"x" * 60 + b"\n\n",
    "an event too large by its lines": b"data: " + b"x" * 16 + b"\ndata: " + b"x" * 16 + b"\n\n",
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_an_error_after_the_good_events_in_every_slicing(fault: bytes) -> None:
    for parts in slicings(b"data: good\n\n" + fault, cuts=1):
        parser = SseParser(max_event=32)
        events: list[SseEvent] = []

        def run(parser: SseParser, parts: list[bytes], events: list[SseEvent]) -> None:
            for part in parts:
                events += parser.feed(part)
            events += parser.close()

        with pytest.raises(UpstreamInvalidStream):
            run(parser, parts, events)
        assert events == [("message", b"good")]
        with pytest.raises(UpstreamInvalidStream):
            parser.feed(b"data: x\n\n")


FITS = {
    "data of just the limit": b"data: " + b"x" * 32 + b"\n\n",
    "two lines and their joint of just the limit": b"data: " + b"x" * 16 + b"\ndata: " + b"x" * 15 + b"\n\n",
    "many events": b"data: xxxxxxxxxxxxxxxx\n\n" * 9,
}


@pytest.mark.parametrize("stream", FITS.values(), ids=FITS.keys())
def test_what_fits_is_read(stream: bytes) -> None:
    for parts in slicings(stream, cuts=1):
        parser = SseParser(max_event=32)
        assert [event for part in parts for event in parser.feed(part)]


def test_a_line_without_end_is_refused_before_it_fills_memory() -> None:
    parser = SseParser()
    for _ in range(16):
        assert parser.feed(b"x" * 65536) == []
    with pytest.raises(UpstreamInvalidStream, match="more than 1048576 bytes"):
        parser.feed(b"x" * 65536)


def test_an_event_of_one_mebibyte_passes_byte_by_byte() -> None:
    # Joined anew with each byte, this would copy half a terabyte.
    parser, text = SseParser(), b"x" * (1024 * 1024)
    for at in range(0, len(text), 7):
        assert parser.feed((b"data: " if at == 0 else b"") + text[at : at + 7]) == []
    assert parser.feed(b"\n\n") == [("message", text)]
