"""The events as the client receives them: whole batches, cut, checked, and ended once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.calls.response import MAX_COUNTED, ResponseStream
from gateway.calls.timeline import CallTimeline
from gateway.core import fast_paths
from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import GatewayError, UpstreamDisconnected
from gateway.core.events import Begun, Delta, Event, Finish, TokenLogprob, Usage
from gateway.core.record import Record
from gateway.core.text_splice import ChoiceFrame, TextSplice
from gateway.stream.fold import Fold, fast_fold
from gateway.stream.output_parser import OutputParser, ParserOptions
from gateway.stream.reasoning import Thinking
from gateway.stream.tool_calls import FORMATS
from gateway.stream.tool_calls.lazyllm import CallTokens
from tests.policy.asking import exchange

BEGUN, STOP = Begun("m/0"), Finish(0, "stop")
CUT = Finish(0, "stop", matched="<eob>", source="gateway")
SCORED = Delta(0, "a", (TokenLogprob("a", -0.5),))

Batches = list[Sequence[Event]]


BUFFERED = 1000
"""Batches that come without a turn of the loop: a connection holds no more than some, then it reads again."""


class Played:
    """Events in given batches, then an error if there is one."""

    def __init__(self, batches: Batches, error: GatewayError | None, tells: bool = True) -> None:
        """``tells``: say so when the last batch is out."""
        self.left = deque(batches)
        self.error = error
        self.tells = tells

    @property
    def exhausted(self) -> bool:
        return self.tells and not self.left and self.error is None

    async def forward_text(self, splice: TextSplice) -> None:
        while self.left and len(self.left[0]) == 1 and self._passes(self.left[0][0], splice):
            splice.moments.append(1.0)
            self.left.popleft()

    def _passes(self, event: Event, splice: TextSplice) -> bool:
        if not isinstance(event, Delta) or event != Delta(event.index, event.text) or not event.text:
            return False
        frame = splice.frames.get(event.index)
        if frame is None or (splice.halts is not None and splice.halts.search(event.text)):
            return False
        if not splice.write(frame.before + event.text.encode() + frame.after):
            return False
        frame.forwarded += len(event.text)
        return True

    async def next_batch(self) -> Sequence[Event]:
        if not self.left and self.error is not None:
            raise self.error
        if len(self.left) % BUFFERED == BUFFERED - 1:
            await asyncio.sleep(0)
        return self.left.popleft() if self.left else ()


async def estimate(written: str) -> Usage:
    return Usage(1, len(written), source="estimated")


def watch(
    batches: Batches, error: GatewayError | None = None, counts: bool = False, **asked: Any
) -> tuple[Batches, str | None, int]:
    """The batches that came out, the code they ended with, and how many were left upstream."""

    async def run() -> tuple[Batches, str | None, int]:
        played = Played(batches, error)
        timeline = CallTimeline("chat", "req_1", 0.0)
        watched = ResponseStream(exchange(**asked), played, timeline, estimate if counts else None)
        out: Batches = []
        try:
            while batch := await watched.next_batch():
                out.append(list(batch))
            assert not await watched.next_batch()
        except GatewayError as raised:
            with pytest.raises(type(raised)):  # and it stays so
                await watched.next_batch()
            return out, raised.code, len(played.left)
        return out, None, len(played.left)

    return asyncio.run(run())


TEXTS = st.text("ab<eo>", max_size=8)
LOGPROBS = st.sampled_from([None, (TokenLogprob("a", -0.5),)])
NAMED = st.sampled_from([EMPTY_MAPPING, {"reasoning_content": "b"}])
ENDS = st.builds(Finish, st.integers(0, 1), st.sampled_from(["stop", "length"]), extras=NAMED)
ANSWERS = st.lists(
    st.one_of(
        st.builds(Delta, st.integers(0, 1), TEXTS, LOGPROBS, NAMED, NAMED),
        ENDS,
        ENDS,
        st.just(Usage(1, 2)),
        st.just(Begun("m/0", notices=("bos: missing",))),
    ),
    min_size=1,
    max_size=5,
)


def heard(batches: Batches, tells: bool, **asked: Any) -> tuple[object, ...]:
    """The events, how they ended, and what the timeline has noted."""

    async def run() -> tuple[object, ...]:
        timeline = CallTimeline("chat", "req_1", 0.0, now=lambda: 1.0)
        watched = ResponseStream(exchange(**asked), Played(batches, None, tells), timeline, None)
        out: list[Event] = []
        code = ""
        try:
            while batch := await watched.next_batch():
                out += batch
        except GatewayError as raised:
            code = raised.code
        record = timeline.freeze("ok", 200)
        return out, code, record

    return asyncio.run(run())


@settings(max_examples=300)
@given(ANSWERS, st.booleans(), st.sampled_from([(), ("<eo>",), ("b", "<eo>")]), st.integers(1, 2))
def test_the_fast_path_gives_the_events_of_the_general_one(
    answer: list[Event], stream: bool, stops: tuple[str, ...], n: int
) -> None:
    """All at once and known to be all, or piece by piece from one who never tells: the client hears the same."""
    asked = {"stops": stops, "n": n}
    at_once = heard([answer], True, stream=stream, **asked)
    assert at_once == heard([answer], False, stream=stream, **asked)
    if not stream:  # a stream is left at its cut, and what comes after it is not heard
        assert at_once == heard([[event] for event in answer], False, stream=False, **asked)


def whole(batches: Batches, tells: bool, **asked: Any) -> tuple[object, ...]:
    """The whole answer or its error, and the record of its call."""

    async def run() -> tuple[object, ...]:
        timeline = CallTimeline("chat", "req_1", 0.0, now=lambda: 1.0)
        response = ResponseStream(exchange(stream=False, **asked), Played(batches, None, tells), timeline, None)
        outcome: object
        try:
            outcome = await response.whole()
        except GatewayError as raised:
            outcome = raised.code
        return outcome, timeline.freeze("ok", 200)

    return asyncio.run(run())


@settings(max_examples=300)
@given(ANSWERS, st.sampled_from([(), ("<eo>",), ("b", "<eo>")]), st.integers(1, 2))
@example([BEGUN, Delta(0, "a"), Finish(0, "length"), Usage(1, 2)], (), 1)
@example([BEGUN, Delta(0, "a<eo>b"), STOP, Usage(1, 2)], ("<eo>",), 1)
def test_a_whole_answer_is_the_same_in_one_batch_and_event_by_event(
    answer: list[Event], stops: tuple[str, ...], n: int
) -> None:
    at_once = whole([answer], True, stops=stops, n=n)
    assert at_once == whole([answer], False, stops=stops, n=n)
    assert at_once == whole([[event] for event in answer], False, stops=stops, n=n)


@settings(max_examples=300)
@given(ANSWERS, st.sampled_from([(), ("<eo>",), ("b", "<eo>")]), st.integers(1, 2), st.integers(0, 3))
@example([Usage(1, 2), Delta(1, "<"), Delta(0, "<")], ("<eo>",), 2, 0)
def test_what_flows_is_what_would_have_been_pulled(
    answer: list[Event], stops: tuple[str, ...], n: int, busy: int
) -> None:
    """``busy``: the client cannot take every piece whose number that divides."""

    async def run(flows: bool) -> tuple[list[Event], str]:
        played = Played([[event] for event in answer], None)
        timeline = CallTimeline("chat", "req_1", 0.0)
        watched = ResponseStream(exchange(stops=stops, n=n), played, timeline, None)
        out: list[Event] = []
        asked = 0

        def write(frame: bytes) -> bool:
            nonlocal asked
            asked += 1
            if busy and asked % busy == 0:
                return False
            out.append(Delta(frame[0] - ord("0"), frame[1:-1].decode()))
            return True

        try:
            while batch := await watched.next_batch():
                out += batch
                if flows:
                    await watched.forward_text(
                        TextSplice(write, {index: ChoiceFrame(b"%d" % index, b";") for index in range(n)})
                    )
        except GatewayError as raised:
            return out, raised.code
        return out, ""

    assert asyncio.run(run(True)) == asyncio.run(run(False))


@given(ANSWERS)
def test_a_whole_answer_is_folded_as_its_events_are(answer: list[Event]) -> None:
    fold = Fold()
    for event in answer:
        fold.add(event)
    folded_at_once = fast_fold(answer)
    if folded_at_once is not None:
        assert folded_at_once == fold.result()


@pytest.mark.skipif(not fast_paths.ENABLED, reason="fast paths are off")
def test_an_answer_of_one_text_is_folded_by_the_fast_path() -> None:
    assert fast_fold([BEGUN, Delta(0, "a"), STOP, Usage(1, 1)]) is not None


def test_a_batch_comes_out_as_one() -> None:
    batches: Batches = [[BEGUN, Delta(0, "a"), Delta(0, "b")], [Delta(0, "c"), STOP, Usage(1, 3)]]
    assert watch(batches, stops=("<eob>",)) == (batches, None, 0)


def test_what_is_held_back_makes_no_empty_batch() -> None:
    batches: Batches = [[BEGUN], [Delta(0, "<e")], [Delta(0, "x")], [STOP]]
    out, code, _ = watch(batches, stops=("<eob>",))
    assert (out, code) == ([[BEGUN], [Delta(0, "<e"), Delta(0, "x")], [STOP]], None)


def test_an_engine_that_runs_on_is_not_listened_to() -> None:
    batches: Batches = [[BEGUN, Delta(0, "a<eob>junk")], [Delta(0, "more")], [STOP]]
    assert watch(batches, stops=("<eob>",)) == ([[BEGUN, Delta(0, "a"), CUT]], None, 2)


def test_the_first_end_of_a_choice_stands() -> None:
    assert watch([[BEGUN, STOP, Finish(0, "length")]]) == ([[BEGUN, STOP]], None, 0)


def test_what_came_before_a_failure_is_handed_out_first() -> None:
    batches: Batches = [[BEGUN, Delta(0, "a")]]
    assert watch(batches, UpstreamDisconnected("gone")) == (batches, "upstream_disconnected", 0)


def test_an_answer_without_its_end_is_incomplete() -> None:
    batches: Batches = [[BEGUN, Delta(0, "a")]]
    assert watch(batches) == (batches, "upstream_incomplete", 0)


ADD = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
NAMES = frozenset({"add"})
READING = ParserOptions(Thinking("<think>", "</think>"), FORMATS["hermes"](CallTokens(), NAMES), NAMES)
TOOL_ANSWERS = st.lists(
    st.one_of(
        st.builds(
            Delta, st.integers(0, 1), st.sampled_from(["<think>", "</think>", ADD, ADD[:9], ADD[9:], "a", "<eo>"])
        ),
        ENDS,
        st.just(Usage(1, 2)),
    ),
    min_size=1,
    max_size=7,
)


def read(batches: Batches, reading: ParserOptions, **asked: Any) -> tuple[list[Event], str, int, Record]:
    """The events, the code they ended with, how many batches were left upstream, and what was noted."""

    async def run() -> tuple[list[Event], str, int, Record]:
        played = Played(batches, None)
        timeline = CallTimeline("chat", "req_1", 0.0, now=lambda: 1.0)
        numbers = count()
        reader = OutputParser(reading, asked.get("n", 1), lambda: f"call_{next(numbers)}")
        watched = ResponseStream(exchange(**asked), played, timeline, None, reader)
        out: list[Event] = []
        code = ""
        try:
            while batch := await watched.next_batch():
                out += batch
                await watched.forward_text(TextSplice(lambda frame: True, {}))
        except GatewayError as raised:
            code = raised.code
        return out, code, len(played.left), timeline.freeze("ok", 200)

    return asyncio.run(run())


@settings(max_examples=200)
@given(TOOL_ANSWERS, st.sampled_from([(), ("<eo>",)]), st.integers(1, 2))
def test_an_answer_with_a_reader_is_the_same_whatever_its_batches(
    answer: list[Event], stops: tuple[str, ...], n: int
) -> None:
    asked = {"stream": False, "stops": stops, "n": n}
    at_once, code, _, record = read([answer], READING, **asked)
    again, code_again, _, record_again = read([[event] for event in answer], READING, **asked)
    assert (at_once, code, record.tool_parse_failures) == (again, code_again, record_again.tool_parse_failures)
    ends = [event.index for event in at_once if isinstance(event, Finish)]
    assert len(ends) == len(set(ends))


def test_an_answer_that_may_hold_one_call_is_not_read_behind_it() -> None:
    reading = replace(READING, thinking=None, one_call=True)
    out, code, left, _ = read([[BEGUN, Delta(0, ADD)], [Delta(0, "more")], [STOP]], reading)
    assert (out[-1], code, left) == (Finish(0, "tool_calls", source="gateway"), "", 2)


def test_an_engine_that_breaks_off_in_a_call_is_incomplete() -> None:
    out, code, _, record = read([[BEGUN, Delta(0, "a" + ADD[:20])]], READING)
    assert (out, code) == (
        [BEGUN, Delta(0, "a"), Delta(0, "<tool_call>"), Delta(0, ADD[11:20])],
        "upstream_incomplete",
    )
    assert record.tool_parse_failures == 1


def test_an_engine_that_breaks_off_behind_a_call_without_its_end_has_made_it() -> None:
    out, code, _, _ = read([[BEGUN, Delta(0, ADD.removesuffix("</tool_call>"))]], READING)
    assert code == "upstream_incomplete"
    assert [event.fields["tool_calls"][0]["index"] for event in out if isinstance(event, Delta)] == [0, 0]


def test_what_a_stop_and_a_marker_held_goes_out_before_the_failure() -> None:
    out, code, _, _ = read([[BEGUN, Delta(0, "a<tool<e")]], READING, stops=("<eo>",))
    said = "".join(event.text for event in out if isinstance(event, Delta))
    assert (said, code) == ("a<tool<e", "upstream_incomplete")
    assert watch([[BEGUN, Delta(0, "a<e")]], stops=("<eo>",)) == (
        [[BEGUN, Delta(0, "a"), Delta(0, "<e")]],
        "upstream_incomplete",
        0,
    )


@pytest.mark.parametrize(
    "batches",
    [
        [[BEGUN, Delta(0, "<tool_call>x" * 80_000), STOP]],
        [[BEGUN, Delta(0, "<tool_call>[")], *[[Delta(0, '{"', None)]] * 60_000, [STOP]],
        [[BEGUN, Delta(0, "<tool_call>")], [Delta(0, '["<tool_call>x' * 60_000)]],
    ],
    ids=["a whole answer", "a stream", "an end"],
)
def test_a_long_answer_does_not_hold_up_the_loop(batches: Batches) -> None:
    async def run() -> tuple[int, float]:
        watched = ResponseStream(
            exchange(stream=False),
            Played(batches, None),
            CallTimeline("chat", "req_1", 0.0),
            None,
            OutputParser(READING),
        )
        longest, turns = 0.0, 0

        async def drain() -> int:
            said = 0
            try:
                while batch := await watched.next_batch():
                    said += sum(len(event.text) for event in batch if isinstance(event, Delta))
                    await asyncio.sleep(0)
            except GatewayError:
                pass
            return said

        task = asyncio.ensure_future(drain())
        while not task.done():
            before = time.thread_time()  # its own: a machine with other work has pauses of its own
            await asyncio.sleep(0.001)
            longest, turns = max(longest, time.thread_time() - before), turns + 1
        assert turns > 3
        return task.result(), longest

    said, longest = asyncio.run(run())
    assert said == sum(len(event.text) for batch in batches for event in batch if isinstance(event, Delta))
    assert longest < 0.3  # half a second and more where it is read in the loop


def given_up(text: str, reader: OutputParser, moment: Callable[[], Awaitable[object]], *, stream: bool) -> list[Event]:
    """What is unsaid of a call whose only text is being looked at when it is cancelled, at that moment."""

    async def run() -> list[Event]:
        played = Played([[BEGUN], [Delta(0, text)]], None)
        watched = ResponseStream(exchange(stream=stream), played, CallTimeline("chat", "req_1", 0.0), None, reader)
        assert await watched.next_batch() == [BEGUN]
        task = asyncio.ensure_future(watched.next_batch())
        await moment()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return list(await watched.take_pending())

    return asyncio.run(run())


def test_a_call_that_is_given_up_while_it_is_read_keeps_its_text() -> None:
    text = "a" + "<tool_call>x" * 40_000
    out = given_up(
        text, OutputParser(READING), lambda: asyncio.sleep(0), stream=False
    )  # by then it is read beside the loop
    assert "".join(event.text for event in out if isinstance(event, Delta)) == text
    assert not any(isinstance(event, Finish) for event in out)


def test_a_call_that_is_given_up_while_its_end_is_read_keeps_what_was_ready() -> None:
    """The first text waits for what belongs behind it: a call that never ends, read beside the loop."""
    text = "a" + '<tool_call>{"name": "add", "arguments": {"a": "' + "x" * 90_000
    closing = threading.Event()

    class Slow(OutputParser):
        def close(self, last: Sequence[Event] = ()) -> list[Event]:
            closing.set()
            time.sleep(0.02)
            return super().close(last)

    out = given_up(text, Slow(READING), lambda: asyncio.to_thread(closing.wait, 5.0), stream=True)
    assert "".join(event.text for event in out if isinstance(event, Delta)) == text


@settings(max_examples=200)
@given(TOOL_ANSWERS, st.sampled_from([(), ("<eo>",)]), st.integers(1, 2))
def test_what_is_unsaid_is_what_an_end_would_have_said(answer: list[Event], stops: tuple[str, ...], n: int) -> None:
    """A stream that fails tells as much as one that just ends, but for the finishes."""

    async def run(error: GatewayError | None) -> list[Event]:
        numbers = count()
        reader = OutputParser(READING, n, lambda: f"call_{next(numbers)}")
        played = Played([[event] for event in answer], error)
        watched = ResponseStream(exchange(stops=stops, n=n), played, CallTimeline("chat", "req_1", 0.0), None, reader)
        out: list[Event] = []
        with suppress(GatewayError):
            while batch := await watched.next_batch():
                out += batch
        return [*out, *await watched.take_pending()]

    assert asyncio.run(run(UpstreamDisconnected("gone"))) == asyncio.run(run(None))


def test_what_looked_like_a_call_is_noted() -> None:
    record = read([[BEGUN, Delta(0, ADD[:20]), STOP]], READING)[3]
    assert record.tool_parse_failures == 1


# name: (logprobs asked for, batch, what comes out, code)
SCORES: dict[str, tuple[int | bool, list[Event], Batches, str | None]] = {
    "scores that came": (0, [BEGUN, SCORED, STOP], [[BEGUN, SCORED, STOP]], None),
    "scores that did not": (0, [BEGUN, Delta(0, "a"), STOP], [[BEGUN]], "upstream_ignored_parameter"),
    "nobody asked": (False, [BEGUN, Delta(0, "a"), STOP], [[BEGUN, Delta(0, "a"), STOP]], None),
    "text that has none of its own": (1, [BEGUN, Delta(0), SCORED, STOP], [[BEGUN, Delta(0), SCORED, STOP]], None),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_that_were_asked_for_must_come(name: str) -> None:
    logprobs, batch, out, code = SCORES[name]
    assert watch([batch], params={"logprobs": logprobs})[:2] == (out, code)


@pytest.mark.parametrize("how", ["stopped", "failed"])
@pytest.mark.parametrize("name", ["cut here", "ended by the engine"])
def test_a_call_that_is_given_up_while_it_is_counted_keeps_its_last_batch(name: str, how: str) -> None:
    lasts: dict[str, Sequence[Event]] = {
        "cut here": [Delta(0, " two.<eo>junk")],
        "ended by the engine": [Delta(0, " two.<e"), STOP],
    }
    last = lasts[name]

    async def counts(written: str) -> Usage:
        if how == "failed":
            raise UpstreamDisconnected("whoever counts is gone")
        await asyncio.sleep(9)
        return Usage(1, len(written))

    async def run() -> str:
        played = Played([[BEGUN, Delta(0, "I add one and one:")], last], None)
        watched = ResponseStream(exchange(stops=("<eo>",)), played, CallTimeline("chat", "req_1", 0.0), counts)
        out = [*await watched.next_batch()]
        task = asyncio.ensure_future(_rest(watched, out))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, UpstreamDisconnected)):
            await task
        out += await watched.take_pending()
        assert not any(isinstance(event, Finish) for event in out[:-1])
        return "".join(event.text for event in out if isinstance(event, Delta))

    said = " two." if name == "cut here" else " two.<e"
    assert asyncio.run(run()) == f"I add one and one:{said}"


async def _rest(watched: ResponseStream, out: list[Event]) -> None:
    while batch := await watched.next_batch():
        out += batch


COUNTS: dict[str, tuple[Batches, list[Usage]]] = {  # name: (batches, what is counted here)
    "an answer without counts": ([[BEGUN, Delta(0, "ab")], [Delta(0, "c"), STOP]], [Usage(1, 3, source="estimated")]),
    "cut here": ([[BEGUN, Delta(0, "ab<eob>cd")]], [Usage(1, 2, source="estimated")]),
    "an answer too long to keep": (
        [[BEGUN, Delta(0, "a" * (MAX_COUNTED // 2))], [Delta(0, "b" * MAX_COUNTED), STOP]],
        [],
    ),
    "an answer with counts": ([[BEGUN, Delta(0, "ab"), STOP, Usage(4, 4)]], [Usage(4, 4)]),
}


@pytest.mark.parametrize("name", COUNTS)
def test_what_the_upstream_did_not_count_is_counted_here(name: str) -> None:
    batches, counted = COUNTS[name]
    out, code, _ = watch(batches, counts=True, stops=("<eob>",))
    assert code is None
    assert [event for batch in out for event in batch if isinstance(event, Usage)] == counted


LASTS: dict[str, Batches] = {
    "the engine's end": [[BEGUN, Delta(0, "a")], [STOP, Usage(1, 2)]],
    "all at once": [[BEGUN, Delta(0, "a"), STOP]],
    "held text": [[BEGUN, Delta(0, "a")], [Delta(0, "<e"), STOP]],
    "a stop of ours": [[BEGUN, Delta(0, "a")], [Delta(0, "<eob>b"), Delta(0, "c"), STOP]],
}


@pytest.mark.parametrize("name", LASTS)
def test_the_last_batch_is_known_as_the_last(name: str) -> None:
    """So the end of a stream need not wait for a look at nothing; and that look finds nothing."""

    async def run() -> Batches:
        asked = exchange(stream=True, stops=("<eob>",))
        watched = ResponseStream(asked, Played(list(LASTS[name]), None), CallTimeline("chat", "r", 0.0), None)
        out: Batches = []
        while not watched.exhausted:
            out.append(await watched.next_batch())
        assert not await watched.next_batch()
        return out

    batches = asyncio.run(run())
    assert len(batches) == len(LASTS[name])
    assert any(isinstance(event, Finish) for event in batches[-1])


def test_an_end_that_is_an_error_is_not_the_last() -> None:
    async def run() -> None:
        played = Played([[BEGUN, Delta(0, "a")], [Usage(1, 2)]], None)
        watched = ResponseStream(exchange(stream=True), played, CallTimeline("chat", "r", 0.0), None)
        assert list(await watched.next_batch()) == [BEGUN, Delta(0, "a")]
        assert list(await watched.next_batch()) == [Usage(1, 2)]
        assert not watched.exhausted
        with pytest.raises(GatewayError, match="without a finish_reason"):
            await watched.next_batch()

    asyncio.run(run())
