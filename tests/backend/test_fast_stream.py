"""The fast path of streams writes the same frames as the general path, for events of every form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.backend.openai.answer.events import CHAT_FORMAT, COMPLETIONS_FORMAT, ChunkReader
from gateway.backend.openai.answer.fast_stream import ATTEMPTS, SseSplicer
from gateway.core.errors import GatewayError
from gateway.core.text_splice import ChoiceFrame, TextSplice
from gateway.stream.sse import SseParser
from gateway.stream.surrogates import loads, maybe_lone
from metatemplate.answers.stops.stop_search import stop_set
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import Delta

SHAPES = {"completions": COMPLETIONS_FORMAT, "chat": CHAT_FORMAT}
STOPS = ("<eo>", "\n")


def chunk(shape: str, text: Any, index: int = 0, more: Mapping[str, Any] = EMPTY_MAPPING) -> dict[str, Any]:
    said = {"text": text} if shape == "completions" else {"delta": {"content": text}}
    return {"id": "x", "choices": [{"index": index, **said, "logprobs": None, "finish_reason": None}], **more}


def event(body: Any, style: str = "compact") -> bytes:
    said = {
        "compact": lambda: orjson.dumps(body),
        "spaced": lambda: json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        "escaped": lambda: json.dumps(body).encode(),
    }[style]()
    return b"data: " + said + b"\n\n"


def frame(index: int, text: str) -> bytes:
    return b'data: {"%d":%b}\n\n' % (index, orjson.dumps(text))


class Stream:
    """A client that gets the text of a stream, as far as possible directly."""

    def __init__(self, shape: str, *, stops: tuple[str, ...] = (), forwards: bool = True) -> None:
        self.frames: list[bytes] = []
        self.direct: list[bytes] = []
        self.busy = False
        self.splice = TextSplice(
            self._write, {index: ChoiceFrame(b'data: {"%d":' % index, b"}\n\n") for index in range(2)}
        )
        self.splice.halts = stop_set(stops).first
        self.reader = ChunkReader(SHAPES[shape], "m/0", 2)
        self._forwards = forwards
        self._splicer = SseSplicer(SHAPES[shape])
        self._parser = SseParser()
        self._last: tuple[bytes, Sequence[Any]] = (b"", [])

    def take(self, piece: bytes) -> bool:
        """Take a piece of the body. Returns whether the piece was forwarded without being read."""
        if self._forwards and self._parser.idle and self._splicer.begin(self.splice, *self._last):
            taken = self._splicer.take(piece)
            self._splicer.end()
            if taken:
                return True
        for _, data in self._parser.feed(piece):
            events = self.reader.read(loads(data), surrogates=maybe_lone(data))
            self.frames += [frame(one.index, one.text) for one in events if isinstance(one, Delta) and one.text]
            self._last = data, events
        return False

    def _write(self, frames: bytes) -> bool:
        if not self.busy:
            self.frames.append(frames)
            self.direct.append(frames)
        return not self.busy


def began(shape: str, text: Any = "a", **options: Any) -> Stream:
    """A stream whose first event was read."""
    stream = Stream(shape, **options)
    stream.take(event(chunk(shape, text)))
    stream.frames.clear()
    return stream


TEXT = st.text(st.sampled_from('ab é漢😀"\\\n\r\t\x7f\u2028<:,{}'), max_size=4) | st.sampled_from(
    ["", '"text":', '"text":"a"', '"content":', '","', "\\u00e9", "\ud83d", "\ude00", None, 1, "a", "b", "c", "d", "e"]
)
MORE = st.fixed_dictionaries(
    {},
    optional={
        "created": st.integers(1, 2),
        "text": st.just("a"),
        "content": st.just("a"),
        "usage": st.none() | st.just({"prompt_tokens": 1, "x": "a"}),
        "error": st.sampled_from([None, "", {"message": "a"}]),
        "note": st.sampled_from(["\n", {"text": "a"}]),
    },
)
STYLES = st.sampled_from(["compact", "compact", "spaced", "escaped"])
EVENTS = st.lists(st.tuples(TEXT, st.sampled_from([0, 0, 0, 1]), MORE, STYLES), max_size=8)


def written(shape: str, pieces: list[bytes], forwards: bool) -> tuple[bytes, bool]:
    """The bytes for the client, and whether an event could not be read."""
    stream = Stream(shape, stops=STOPS, forwards=forwards)
    failed = False
    try:
        for piece in pieces:
            stream.take(piece)
    except (ValueError, GatewayError):
        failed = True
    texts = [json.loads(one[len(b'data: {"0":') : -1]) for part in stream.direct for one in part.split(b"\n\n")[:-1]]
    assert not any("<" in text or "\n" in text or not text for text in texts)
    assert sum(map(len, texts)) == sum(frame.forwarded for frame in stream.splice.frames.values())
    assert len(texts) == len(stream.splice.moments)
    return b"".join(stream.frames), failed


@pytest.mark.parametrize("shape", SHAPES)
@given(said=EVENTS, plain=st.booleans(), cuts=st.lists(st.integers(0, 8), max_size=8))
@example(said=[("a", 0, {}, "compact"), ("é", 0, {}, "compact"), ("", 0, {}, "compact")], plain=False, cuts=[1])
@example(said=[("a", 0, {}, "compact")] * 3, plain=True, cuts=[1])
def test_what_is_forwarded_is_what_would_have_been_read(
    shape: str, said: list[Any], plain: bool, cuts: list[int]
) -> None:
    """``plain``: the events differ only in their text, as those of real engines do. ``cuts``: where a read ends."""
    events = []
    for text, index, more, style in said:
        if isinstance(text, str) and not text.isascii() and "\ud83d" <= text <= "\udfff":
            style = "escaped"  # half a character can only be written as an escape
        events.append(event(chunk(shape, text, 0 if plain else index, {} if plain else more), style))
    edges = [0, *sorted(cuts), len(events)]
    pieces = [b"".join(events[start:end]) for start, end in pairwise(edges)]
    assert written(shape, pieces, True) == written(shape, pieces, False)


BYTES = st.binary(max_size=12) | st.sampled_from(
    [b"a", b"\xff", b"\xc3\xa9", b"\xc3", b"\xa9", b"\xed\xa0\x80", b'a"', b'a","b', b'a",\n"b', b"\\", b"\\n", b"\n"]
)


@pytest.mark.parametrize("shape", SHAPES)
@given(between=st.lists(BYTES, min_size=1, max_size=3))
@example(between=[b'a","b'])
@example(between=[b'a","b', b"c\\"])
@example(between=[b"\xc3", b"\xa9"])
@example(between=[b"", b"a"])
def test_only_whole_strings_are_forwarded(shape: str, between: list[bytes]) -> None:
    """Any bytes in the place of the text."""
    model = event(chunk(shape, "TEXT"))
    pieces = [model, b"".join(model.replace(b"TEXT", one) for one in between)]
    if b"\\u" not in pieces[1]:
        assert written(shape, pieces, True) == written(shape, pieces, False)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("texts", [["b"], ["b", "é", "漢", "a\\", '"'], ["x"] * 7], ids=str)
def test_events_that_arrive_together_are_written_together(shape: str, texts: list[str]) -> None:
    stream = began(shape)
    assert stream.take(b"".join(event(chunk(shape, text)) for text in texts))
    assert stream.direct == [b"".join(frame(0, text) for text in texts)]


@pytest.mark.parametrize("cut", range(1, 40))
def test_half_an_event_is_not_forwarded(cut: int) -> None:
    data = event(chunk("completions", "TEXT"))
    assert not began("completions").take(data[:-cut])
    assert not began("completions").take(data * 2 + data[:cut])


def test_a_busy_client_gets_nothing() -> None:
    stream, data = began("completions"), event(chunk("completions", "TEXT"))
    assert stream.take(data)
    stream.busy = True
    assert not stream.take(data)
    assert stream.splice.frames[0].forwarded == 4
    assert len(stream.splice.moments) == 1


def test_a_choice_without_a_frame_is_not_forwarded() -> None:
    stream = began("completions")
    del stream.splice.frames[0]
    assert not stream.take(event(chunk("completions", "b")))


def test_events_that_all_look_different_are_not_learned_for_ever() -> None:
    stream = began("completions")
    for number in range(2 * ATTEMPTS):
        assert not stream.take(event(chunk("completions", "t", 0, {"created": number})))
    same = event(chunk("completions", "t", 0, {"created": 0}))
    assert [stream.take(same) for _ in range(2)] == [False, False]


def test_only_the_text_itself_is_learned() -> None:
    """Another string of the same value and the same key, spaced otherwise, does not belong to the choice."""
    stream = Stream("completions")
    choice = b'{"index":0,"text" :"%b","logprobs":null,"finish_reason":null}'
    for other, text in ((b"a", b"a"), (b"LEAK", b"a"), (b"LEAK", b"b")):
        stream.take(b'data: {"text":"' + other + b'","choices":[' + choice % text + b"]}\n\n")
    assert stream.frames == [frame(0, "a"), frame(0, "a"), frame(0, "b")]


@pytest.mark.parametrize("shape", SHAPES)
def test_text_after_half_a_character_is_read(shape: str) -> None:
    stream = began(shape)
    assert stream.take(event(chunk(shape, "b")))
    assert not stream.take(event(chunk(shape, "c\ud83d"), "escaped"))
    assert not stream.take(event(chunk(shape, "d")))
    assert stream.frames == [frame(0, "b"), frame(0, "c"), frame(0, "\ufffdd")]


def test_an_event_whose_data_have_several_lines_is_not_learned() -> None:
    """The second piece has the same bytes as the data of the event before, but its second line is not data."""
    stream = Stream("completions")
    stream.take(b'data: {"choices":[{"index":0,\ndata: "text":"a"}]}\n\n')
    with pytest.raises(ValueError, match="unexpected end of data"):
        stream.take(b'data: {"choices":[{"index":0,\n"text":"b"}]}\n\n')
