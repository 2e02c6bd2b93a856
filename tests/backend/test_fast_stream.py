"""The fast path of streams writes the same frames as the general path, for events of every form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.backend.openai.answer.events import CHAT_FORMAT, COMPLETIONS_FORMAT, ChunkReader
from gateway.backend.openai.answer.fast_stream import ATTEMPTS, Sample, SseSplicer
from gateway.core import fast_paths
from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import GatewayError
from gateway.core.events import Delta
from gateway.core.text_splice import ChoiceFrame, TextSplice
from gateway.stream.sse import SseParser
from gateway.stream.stops.stop_search import stop_set

pytestmark = pytest.mark.skipif(not fast_paths.ENABLED, reason="compares the fast path with the general form")

SHAPES = {"completions": COMPLETIONS_FORMAT, "chat": CHAT_FORMAT}
STOPS = ("<eo>", "\n")


def chunk(shape: str, text: Any, index: int = 0, more: Mapping[str, Any] = EMPTY_MAPPING) -> dict[str, Any]:
    said = {"text": text} if shape == "completions" else {"delta": {"content": text}}
    return {"id": "x", "choices": [{"index": index, **said, "logprobs": None, "finish_reason": None}], **more}


def event(body: Any, style: str = "compact") -> bytes:
    said = {
        "compact": lambda: orjson.dumps(body),
        "spaced": lambda: json.dumps(body, ensure_ascii=False).encode(),
        "escaped": lambda: json.dumps(body).encode(),
    }[style]()
    return b"data: " + said + b"\n\n"


def choice_frames() -> dict[int, ChoiceFrame]:
    return {index: ChoiceFrame(b'data: {"%d":' % index, b"}\n\n") for index in range(2)}


def splice_into(frames: list[bytes]) -> TextSplice:
    """A splice whose client takes every frame."""

    def write(frame: bytes) -> bool:
        frames.append(frame)
        return True

    return TextSplice(write, choice_frames())


def introduced(shape: str) -> ChunkReader:
    """An answer whose two choices have begun, as it is when a splice opens."""
    answer = ChunkReader(SHAPES[shape], "m/0", 2)
    for index in range(2):
        answer.read(chunk(shape, "a", index))
    return answer


def passing(shape: str, splice: TextSplice, sample: Sample | None = None) -> Callable[[bytes], bool]:
    return SseSplicer(introduced(shape), SseParser(), splice, sample).take


def sample_of(shape: str, text: str, style: str = "compact") -> Sample:
    return event(chunk(shape, text), style), Delta(0, text)


def careful(answer: ChunkReader, data: bytes, frames: dict[int, ChoiceFrame]) -> bytes | None:
    """The frame for an event that is nothing but text which no stop touches; None: anything else."""
    if not (data.startswith(b"data: ") and data.endswith(b"\n\n")):
        return None
    try:
        events = answer.read(json.loads(data[6:-2].decode()))
    except (ValueError, GatewayError):
        return None
    if len(events) != 1 or not isinstance(delta := events[0], Delta) or not delta.text:
        return None
    if delta != Delta(delta.index, delta.text) or any(c in delta.text for c in "<\n"):
        return None
    its = frames[delta.index]
    return its.before + orjson.dumps(delta.text) + its.after


TEXT = st.text(st.sampled_from('ab é漢😀"\\\n\r\t\x7f\u2028<:,{}'), max_size=4) | st.sampled_from(
    ["", '"text":', '"text":"a"', '"content":', "\\u00e9", None, 1, "a", "b", "c", "d", "e"]
)
MORE = st.fixed_dictionaries(
    {},
    optional={
        "created": st.integers(1, 2),
        "text": st.just("a"),
        "content": st.just("a"),
        "usage": st.none(),
        "note": st.sampled_from(["\n", {"text": "a"}]),
    },
)
STYLES = st.sampled_from(["compact", "compact", "spaced", "escaped"])
EVENTS = st.lists(st.tuples(TEXT, st.sampled_from([0, 0, 0, 1]), MORE, STYLES), max_size=8)


@pytest.mark.parametrize("shape", SHAPES)
@given(said=EVENTS, plain=st.booleans(), sampled=st.sampled_from([None, "compact", "spaced", "escaped"]))
@example(said=[("a", 0, {}, "compact"), ("é", 0, {}, "compact"), ("", 0, {}, "compact")], plain=False, sampled=None)
@example(said=[("a", 0, {}, "compact"), ("é", 0, {}, "compact")], plain=True, sampled="compact")
def test_what_passes_is_what_would_have_been_read(
    shape: str, said: list[Any], plain: bool, sampled: str | None
) -> None:
    """``plain``: the events differ in their text only, as those of real engines do. ``sampled``: so does the first."""
    frames: list[bytes] = []
    splice = splice_into(frames)
    splice.halts = stop_set(STOPS).first
    passes = passing(shape, splice, None if sampled is None else sample_of(shape, "a", sampled))
    expected: list[bytes] = []
    reader = introduced(shape)
    for text, index, more, style in said:
        data = event(chunk(shape, text, 0 if plain else index, {} if plain else more), style)
        frame = careful(reader, data, choice_frames())
        if passes(data):
            assert frame is not None
            expected.append(frame)
        assert frames == expected
    characters = sum(len(json.loads(frame[len(b'data: {"0":') : -3])) for frame in frames)
    assert characters == sum(frame.forwarded for frame in splice.frames.values())
    assert len(splice.moments) == len(frames)


BYTES = st.binary(max_size=12) | st.sampled_from(
    [b"a", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b'a"', b"\\n", b"\n", b"\r"]
)


@pytest.mark.parametrize("shape", SHAPES)
@given(between=BYTES)
def test_only_a_whole_string_is_not_parsed(shape: str, between: bytes) -> None:
    """Whatever stands where the text stood in the event before: it passes if it is a string, and as that string."""
    frames: list[bytes] = []
    splice = splice_into(frames)
    passes = passing(shape, splice)
    model = event(chunk(shape, "TEXT"))
    assert passes(model)
    data = model.replace(b"TEXT", between)
    frame = careful(introduced(shape), data, choice_frames()) if b"\r" not in data else None
    if b"<" in between or b"\\" in between:
        return  # ``careful`` knows stops, this splice has none
    assert passes(data) is (frame is not None)
    assert frames[1:] == ([frame] if frame is not None else [])


@pytest.mark.parametrize("cut", range(1, 40))
def test_half_an_event_does_not_pass(cut: int) -> None:
    splice = TextSplice(lambda frame: True, choice_frames())
    passes = passing("completions", splice)
    data = event(chunk("completions", "TEXT"))
    assert passes(data)
    assert not passes(data[:-cut])
    assert not passes(data[cut:])


def test_a_busy_client_gets_nothing() -> None:
    busy = False
    splice = TextSplice(lambda frame: not busy, choice_frames())
    passes = passing("completions", splice)
    data = event(chunk("completions", "TEXT"))
    assert passes(data)
    assert passes(data)
    busy = True
    assert not passes(data)
    assert splice.frames[0].forwarded == 8
    assert len(splice.moments) == 2


def test_a_choice_without_a_lane_does_not_pass() -> None:
    splice = TextSplice(lambda frame: True, choice_frames())
    del splice.frames[1]
    passes = passing("completions", splice)
    assert passes(event(chunk("completions", "a", 0)))
    assert not passes(event(chunk("completions", "a", 1)))


def test_an_engine_whose_events_all_look_different_is_read_to_the_end() -> None:
    """After a few attempts nothing is learnt any more, and all the same everything passes."""
    frames: list[bytes] = []
    splice = splice_into(frames)
    passes = passing("completions", splice)
    for number in range(3 * ATTEMPTS):
        assert passes(event(chunk("completions", f"t{number}", 0, {"created": number})))
    assert [json.loads(frame[len(b'data: {"0":') : -3]) for frame in frames] == [f"t{i}" for i in range(3 * ATTEMPTS)]


def test_only_the_text_itself_is_learnt() -> None:
    """Another string of the same value and the same key, spaced otherwise, is none of the choice's."""
    frames: list[bytes] = []
    splice = splice_into(frames)
    reader = ChunkReader(COMPLETIONS_FORMAT, "m/0", 1)
    reader.read(chunk("completions", "a", more={"text": "a"}))
    passes = SseSplicer(reader, SseParser(), splice).take
    choice = b'{"index":0,"text" :"%b","logprobs":null,"finish_reason":null}'
    for other, text in ((b"a", b"a"), (b"LEAK", b"a"), (b"LEAK", b"b")):
        passes(b'data: {"text":"' + other + b'","choices":[' + choice % text + b"]}\n\n")
    assert frames == [b'data: {"0":"a"}\n\n', b'data: {"0":"a"}\n\n', b'data: {"0":"b"}\n\n']


@pytest.mark.parametrize("shape", SHAPES)
def test_an_event_of_known_looks_is_not_parsed(shape: str) -> None:
    """Seen by what is then not looked at: a choice that has ended meanwhile."""
    splice = TextSplice(lambda frame: True, choice_frames())
    answer = introduced(shape)
    passes = SseSplicer(answer, SseParser(), splice).take
    assert passes(event(chunk(shape, "one")))
    answer.read({"choices": [{"index": 0, "finish_reason": "stop"}]})
    assert passes(event(chunk(shape, "two")))
    assert not passes(event(chunk(shape, "two", more={"created": 1})))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_first_event_shows_what_the_second_looks_like(shape: str) -> None:
    """Seen as above: the second is not parsed, or it would be found to say more of a choice that has ended."""
    answer = introduced(shape)
    passes = SseSplicer(
        answer, SseParser(), TextSplice(lambda frame: True, choice_frames()), sample_of(shape, "one")
    ).take
    answer.read({"choices": [{"index": 0, "finish_reason": "stop"}]})
    assert passes(event(chunk(shape, "two")))
    assert not passes(event(chunk(shape, "three", more={"created": 1})))


def test_nothing_is_learnt_for_a_choice_without_a_lane() -> None:
    passes = passing("completions", TextSplice(lambda frame: True, {}), sample_of("completions", "one"))
    assert not passes(event(chunk("completions", "two")))


def test_a_key_that_no_chunk_had_before_ends_the_forwarding() -> None:
    passes = passing("completions", TextSplice(lambda frame: True, choice_frames()))
    assert passes(event(chunk("completions", "a")))
    assert not passes(event(chunk("completions", "b", more={"new": 1})))
