"""``ResponseStream``: batches are cut at stops, parsed, checked and ended once."""

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

from gateway.calls.answer.response import ResponseStream
from gateway.calls.answer.stages import MAX_COUNTED
from gateway.calls.timeline import CallTimeline
from gateway.core.errors import GatewayError, UpstreamDisconnected
from gateway.core.text_splice import ChoiceFrame, TextSource, TextSplice
from gateway.stream.completion_builder import CompletionBuilder, fast_completion
from gateway.telemetry.record import Record
from metatemplate.answers.output_parser import OutputParser, ParserOptions
from metatemplate.answers.tool_calls.registry import FORMATS
from metatemplate.values import fast_paths
from metatemplate.values.answer_markers import Thinking, ToolTokens
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import Begun, Delta, Event, Finish, TokenLogprob, Usage
from tests.policy.responses import exchange

BEGUN, STOP = Begun("m/0"), Finish(0, "stop")
CUT = Finish(0, "stop", matched="<eob>", source="gateway")
SCORED = Delta(0, "a", (TokenLogprob("a", -0.5),))

Batches = list[Sequence[Event]]


BUFFERED = 1000
"""Batches that are returned before the event loop runs other tasks, as with a connection's read buffer."""


class ScriptedEvents:
    """``Events`` with given batches, then the error if there is one."""

    def __init__(self, batches: Batches, error: GatewayError | None, marks_end: bool = True) -> None:
        """``marks_end``: set ``exhausted`` with the last batch."""
        self.left = deque(batches)
        self.error = error
        self.marks_end = marks_end

    @property
    def exhausted(self) -> bool:
        return self.marks_end and not self.left and self.error is None

    @property
    def text_source(self) -> TextSource:
        return self

    async def forward_text(self, splice: TextSplice) -> None:
        while self.left and len(self.left[0]) == 1 and self._forward(self.left[0][0], splice):
            splice.moments.append(1.0)
            self.left.popleft()

    def _forward(self, event: Event, splice: TextSplice) -> bool:
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


def read_batches(
    batches: Batches, error: GatewayError | None = None, counts: bool = False, **options: Any
) -> tuple[Batches, str | None, int]:
    """The batches of the response, its error code, and the number of batches not read from the upstream."""

    async def run() -> tuple[Batches, str | None, int]:
        upstream = ScriptedEvents(batches, error)
        timeline = CallTimeline("chat", "req_1", 0.0)
        response = ResponseStream(exchange(**options), upstream, timeline, estimate if counts else None)
        out: Batches = []
        try:
            while batch := await response.next_batch():
                out.append(list(batch))
            assert not await response.next_batch()
        except GatewayError as raised:
            with pytest.raises(type(raised)):  # also on later calls
                await response.next_batch()
            return out, raised.code, len(upstream.left)
        return out, None, len(upstream.left)

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


def read_events(batches: Batches, marks_end: bool, **options: Any) -> tuple[object, ...]:
    """The events of the response, its error code, and the record of the call."""

    async def run() -> tuple[object, ...]:
        timeline = CallTimeline("chat", "req_1", 0.0, now=lambda: 1.0)
        response = ResponseStream(exchange(**options), ScriptedEvents(batches, None, marks_end), timeline, None)
        out: list[Event] = []
        code = ""
        try:
            while batch := await response.next_batch():
                out += batch
        except GatewayError as raised:
            code = raised.code
        timeline.end("ok", 200)
        return out, code, timeline

    return asyncio.run(run())


@settings(max_examples=80)
@given(ANSWERS, st.booleans(), st.sampled_from([(), ("<eo>",), ("b", "<eo>")]), st.integers(1, 2))
def test_the_fast_path_gives_the_events_of_the_general_one(
    answer: list[Event], stream: bool, stops: tuple[str, ...], n: int
) -> None:
    """One batch that is marked as the last gives the same as one batch for each event."""
    options = {"stops": stops, "n": n}
    at_once = read_events([answer], True, stream=stream, **options)
    assert at_once == read_events([answer], False, stream=stream, **options)
    if not stream:  # a stream is not read after its cut
        assert at_once == read_events([[event] for event in answer], False, stream=False, **options)


def whole(batches: Batches, marks_end: bool, **options: Any) -> tuple[object, ...]:
    """The whole answer or its error, and the record of its call."""

    async def run() -> tuple[object, ...]:
        timeline = CallTimeline("chat", "req_1", 0.0, now=lambda: 1.0)
        response = ResponseStream(
            exchange(stream=False, **options), ScriptedEvents(batches, None, marks_end), timeline, None
        )
        outcome: object
        try:
            outcome = await response.whole()
        except GatewayError as raised:
            outcome = raised.code
        timeline.end("ok", 200)
        return outcome, timeline

    return asyncio.run(run())


@settings(max_examples=80)
@given(ANSWERS, st.sampled_from([(), ("<eo>",), ("b", "<eo>")]), st.integers(1, 2))
@example([BEGUN, Delta(0, "a"), Finish(0, "length"), Usage(1, 2)], (), 1)
@example([BEGUN, Delta(0, "a<eo>b"), STOP, Usage(1, 2)], ("<eo>",), 1)
def test_a_whole_answer_is_the_same_in_one_batch_and_event_by_event(
    answer: list[Event], stops: tuple[str, ...], n: int
) -> None:
    at_once = whole([answer], True, stops=stops, n=n)
    assert at_once == whole([answer], False, stops=stops, n=n)
    assert at_once == whole([[event] for event in answer], False, stops=stops, n=n)


@settings(max_examples=80)
@given(ANSWERS, st.sampled_from([(), ("<eo>",), ("b", "<eo>")]), st.integers(1, 2), st.integers(0, 3))
@example([Usage(1, 2), Delta(1, "<"), Delta(0, "<")], ("<eo>",), 2, 0)
def test_forwarded_text_is_the_same_as_text_in_batches(
    answer: list[Event], stops: tuple[str, ...], n: int, busy: int
) -> None:
    """``busy``: each write whose number it divides is refused by back-pressure."""

    async def run(direct: bool) -> tuple[list[Event], str]:
        upstream = ScriptedEvents([[event] for event in answer], None)
        timeline = CallTimeline("chat", "req_1", 0.0)
        response = ResponseStream(exchange(stops=stops, n=n), upstream, timeline, None)
        out: list[Event] = []
        writes = 0

        def write(frame: bytes) -> bool:
            nonlocal writes
            writes += 1
            if busy and writes % busy == 0:
                return False
            out.append(Delta(frame[0] - ord("0"), frame[1:-1].decode()))
            return True

        try:
            while batch := await response.next_batch():
                out += batch
                if direct:
                    await response.forward_text(
                        TextSplice(write, {index: ChoiceFrame(b"%d" % index, b";") for index in range(n)})
                    )
        except GatewayError as raised:
            return out, raised.code
        return out, ""

    assert asyncio.run(run(True)) == asyncio.run(run(False))


@given(ANSWERS)
def test_the_fast_fold_equals_the_general_fold(answer: list[Event]) -> None:
    fold = CompletionBuilder()
    for event in answer:
        fold.add(event)
    folded_at_once = fast_completion(answer)
    if folded_at_once is not None:
        assert folded_at_once == fold.result()


@pytest.mark.skipif(not fast_paths.ENABLED, reason="fast paths are off")
def test_the_fast_fold_takes_an_answer_of_one_text() -> None:
    assert fast_completion([BEGUN, Delta(0, "a"), STOP, Usage(1, 1)]) is not None


def test_a_batch_stays_one_batch() -> None:
    batches: Batches = [[BEGUN, Delta(0, "a"), Delta(0, "b")], [Delta(0, "c"), STOP, Usage(1, 3)]]
    assert read_batches(batches, stops=("<eob>",)) == (batches, None, 0)


def test_held_text_gives_no_empty_batch() -> None:
    batches: Batches = [[BEGUN], [Delta(0, "<e")], [Delta(0, "x")], [STOP]]
    out, code, _ = read_batches(batches, stops=("<eob>",))
    assert (out, code) == ([[BEGUN], [Delta(0, "<e"), Delta(0, "x")], [STOP]], None)


def test_the_upstream_is_not_read_after_a_stop() -> None:
    batches: Batches = [[BEGUN, Delta(0, "a<eob>junk")], [Delta(0, "more")], [STOP]]
    assert read_batches(batches, stops=("<eob>",)) == ([[BEGUN, Delta(0, "a"), CUT]], None, 2)


def test_after_a_stop_the_upstream_is_read_until_every_choice_has_ended() -> None:
    batches: Batches = [[BEGUN, Delta(0, "a<eob>junk")], [Delta(1, "b")], [Delta(0, "c"), Finish(1, "stop")], [STOP]]
    out = [[BEGUN, Delta(0, "a"), CUT], [Delta(1, "b")], [Finish(1, "stop")]]
    assert read_batches(batches, stops=("<eob>",), n=2) == (out, None, 1)


async def test_a_stop_in_one_turn_does_not_close_the_upstream_of_the_next() -> None:
    timeline, out = CallTimeline("chat", "r", 0.0), list[Event]()
    turns: list[Batches] = [[[BEGUN, Delta(0, "a<eob>")]], [[BEGUN, Delta(0, "b"), STOP], [Usage(1, 2)]]]
    for batches in turns:
        response = ResponseStream(exchange(stops=("<eob>",)), ScriptedEvents(batches, None), timeline, None)
        await _rest(response, out)
    assert out[-3:] == [Delta(0, "b"), STOP, Usage(1, 2)]


def test_a_second_end_of_a_choice_is_dropped() -> None:
    assert read_batches([[BEGUN, STOP, Finish(0, "length")]]) == ([[BEGUN, STOP]], None, 0)


def test_events_before_a_failure_are_returned_first() -> None:
    batches: Batches = [[BEGUN, Delta(0, "a")]]
    assert read_batches(batches, UpstreamDisconnected("gone")) == (batches, "upstream_disconnected", 0)


def test_an_answer_without_a_finish_is_incomplete() -> None:
    batches: Batches = [[BEGUN, Delta(0, "a")]]
    assert read_batches(batches) == (batches, "upstream_incomplete", 0)


ADD = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
NAMES: dict[str, dict[str, object]] = {"add": {}}
PARSING = ParserOptions(Thinking("<think>", "</think>"), FORMATS["hermes"](ToolTokens(), NAMES), NAMES)
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


def read_parsed(batches: Batches, parsing: ParserOptions, **options: Any) -> tuple[list[Event], str, int, Record]:
    """The events, the error code, the number of batches not read from the upstream, and the record."""

    async def run() -> tuple[list[Event], str, int, Record]:
        upstream = ScriptedEvents(batches, None)
        timeline = CallTimeline("chat", "req_1", 0.0, now=lambda: 1.0)
        numbers = count()
        parser = OutputParser(parsing, new_id=lambda: f"call_{next(numbers)}")
        response = ResponseStream(exchange(**options), upstream, timeline, None, parser)
        out: list[Event] = []
        code = ""
        try:
            while batch := await response.next_batch():
                out += batch
                await response.forward_text(TextSplice(lambda frame: True, {}))
        except GatewayError as raised:
            code = raised.code
        timeline.end("ok", 200)
        return out, code, len(upstream.left), timeline

    return asyncio.run(run())


@settings(max_examples=60)
@given(TOOL_ANSWERS, st.sampled_from([(), ("<eo>",)]), st.integers(1, 2))
def test_a_parsed_answer_does_not_depend_on_its_batches(answer: list[Event], stops: tuple[str, ...], n: int) -> None:
    options = {"stream": False, "stops": stops, "n": n}
    at_once, code, _, record = read_parsed([answer], PARSING, **options)
    again, code_again, _, record_again = read_parsed([[event] for event in answer], PARSING, **options)
    assert (at_once, code, record.tool_parse_failures) == (again, code_again, record_again.tool_parse_failures)
    ends = [event.index for event in at_once if isinstance(event, Finish)]
    assert len(ends) == len(set(ends))


def test_with_one_call_the_upstream_is_not_read_after_it() -> None:
    parsing = replace(PARSING, thinking=None, one_call=True)
    out, code, left, _ = read_parsed([[BEGUN, Delta(0, ADD)], [Delta(0, "more")], [STOP]], parsing)
    assert (out[-1], code, left) == (Finish(0, "tool_calls", source="gateway"), "", 2)


def test_an_answer_that_ends_inside_a_tool_call_is_incomplete() -> None:
    out, code, _, record = read_parsed([[BEGUN, Delta(0, "a" + ADD[:20])]], PARSING)
    assert (out, code) == (
        [BEGUN, Delta(0, "a"), Delta(0, "<tool_call>"), Delta(0, ADD[11:20])],
        "upstream_incomplete",
    )
    assert record.tool_parse_failures == {"hermes": 1}


def test_a_complete_tool_call_without_its_end_marker_is_parsed() -> None:
    out, code, _, _ = read_parsed([[BEGUN, Delta(0, ADD.removesuffix("</tool_call>"))]], PARSING)
    assert code == "upstream_incomplete"
    assert [event.fields["tool_calls"][0]["index"] for event in out if isinstance(event, Delta)] == [0, 0]


def test_text_held_for_a_stop_and_a_marker_is_returned_before_the_failure() -> None:
    out, code, _, _ = read_parsed([[BEGUN, Delta(0, "a<tool<e")]], PARSING, stops=("<eo>",))
    text = "".join(event.text for event in out if isinstance(event, Delta))
    assert (text, code) == ("a<tool<e", "upstream_incomplete")
    assert read_batches([[BEGUN, Delta(0, "a<e")]], stops=("<eo>",)) == (
        [[BEGUN, Delta(0, "a"), Delta(0, "<e")]],
        "upstream_incomplete",
        0,
    )


@pytest.mark.parametrize(
    "batches",
    [
        [[BEGUN, Delta(0, "<tool_call>x" * 20_000), STOP]],
        [[BEGUN, Delta(0, "<tool_call>[")], *[[Delta(0, '{"', None)]] * 20_000, [STOP]],
        [[BEGUN, Delta(0, "<tool_call>")], [Delta(0, '["<tool_call>x' * 20_000)]],
    ],
    ids=["a whole answer", "a stream", "an end"],
)
async def test_parsing_a_long_answer_does_not_block_the_event_loop(batches: Batches) -> None:
    started = time.process_time()
    response = ResponseStream(
        exchange(stream=False),
        ScriptedEvents(batches, None),
        CallTimeline("chat", "req_1", 0.0),
        None,
        OutputParser(PARSING),
    )
    longest, turns = 0.0, 0

    async def drain() -> int:
        length = 0
        try:
            while batch := await response.next_batch():
                length += sum(len(event.text) for event in batch if isinstance(event, Delta))
                await asyncio.sleep(0)
        except GatewayError:
            pass
        return length

    task = asyncio.ensure_future(drain())
    while not task.done():
        before = time.thread_time()  # time of this thread only: other work on the machine is not counted
        await asyncio.sleep(0.001)
        longest, turns = max(longest, time.thread_time() - before), turns + 1
    assert turns > 3
    length, total = task.result(), time.process_time() - started
    assert length == sum(len(event.text) for batch in batches for event in batch if isinstance(event, Delta))
    assert longest < total / 4  # nearly all of it if the answer is parsed in the event loop


def cancelled(text: str, parser: OutputParser, moment: Callable[[], Awaitable[object]], *, stream: bool) -> list[Event]:
    """The pending events of a call that is cancelled at ``moment``, while its only text is parsed."""

    async def run() -> list[Event]:
        upstream = ScriptedEvents([[BEGUN], [Delta(0, text)]], None)
        response = ResponseStream(exchange(stream=stream), upstream, CallTimeline("chat", "req_1", 0.0), None, parser)
        assert await response.next_batch() == [BEGUN]
        task = asyncio.ensure_future(response.next_batch())
        await moment()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return list(await response.take_pending())

    return asyncio.run(run())


def test_a_call_cancelled_while_its_text_is_parsed_returns_the_text() -> None:
    text = "a" + "<tool_call>x" * 20_000
    out = cancelled(
        text, OutputParser(PARSING), lambda: asyncio.sleep(0), stream=False
    )  # the text is parsed in a thread by then
    assert "".join(event.text for event in out if isinstance(event, Delta)) == text
    assert not any(isinstance(event, Finish) for event in out)


def test_a_call_cancelled_while_its_end_is_parsed_returns_the_text() -> None:
    """The first text waits for the end of an unfinished tool call, which is parsed in a thread."""
    text = "a" + '<tool_call>{"name": "add", "arguments": {"a": "' + "x" * 90_000
    closing = threading.Event()

    class Slow(OutputParser):
        def flush(self, last: Sequence[Event] = ()) -> list[Event]:
            closing.set()
            time.sleep(0.02)
            return super().flush(last)

    out = cancelled(text, Slow(PARSING), lambda: asyncio.to_thread(closing.wait, 60), stream=True)
    assert "".join(event.text for event in out if isinstance(event, Delta)) == text


@settings(max_examples=60)
@given(TOOL_ANSWERS, st.sampled_from([(), ("<eo>",)]), st.integers(1, 2))
def test_pending_text_of_a_failed_stream_equals_that_of_an_ended_one(
    answer: list[Event], stops: tuple[str, ...], n: int
) -> None:
    """A failed stream returns the same events as one that ended without finishes."""

    async def run(error: GatewayError | None) -> list[Event]:
        numbers = count()
        parser = OutputParser(PARSING, new_id=lambda: f"call_{next(numbers)}")
        upstream = ScriptedEvents([[event] for event in answer], error)
        response = ResponseStream(
            exchange(stops=stops, n=n), upstream, CallTimeline("chat", "req_1", 0.0), None, parser
        )
        out: list[Event] = []
        with suppress(GatewayError):
            while batch := await response.next_batch():
                out += batch
        return [*out, *await response.take_pending()]

    assert asyncio.run(run(UpstreamDisconnected("gone"))) == asyncio.run(run(None))


def test_an_incomplete_tool_call_is_counted_as_a_parse_failure() -> None:
    record = read_parsed([[BEGUN, Delta(0, ADD[:20]), STOP]], PARSING)[3]
    assert record.tool_parse_failures == {"hermes": 1}


# name: (requested logprobs, batch, batches of the response, code)
SCORES: dict[str, tuple[int | bool, list[Event], Batches, str | None]] = {
    "scores were sent": (0, [BEGUN, SCORED, STOP], [[BEGUN, SCORED, STOP]], None),
    "scores are missing": (0, [BEGUN, Delta(0, "a"), STOP], [[BEGUN]], "upstream_ignored_parameter"),
    "not requested": (False, [BEGUN, Delta(0, "a"), STOP], [[BEGUN, Delta(0, "a"), STOP]], None),
    "empty text without scores": (1, [BEGUN, Delta(0), SCORED, STOP], [[BEGUN, Delta(0), SCORED, STOP]], None),
}


@pytest.mark.parametrize("name", SCORES)
def test_missing_requested_logprobs_are_an_error(name: str) -> None:
    logprobs, batch, out, code = SCORES[name]
    assert read_batches([batch], params={"logprobs": logprobs})[:2] == (out, code)


@pytest.mark.parametrize("how", ["stopped", "failed"])
@pytest.mark.parametrize("name", ["cut here", "ended by the engine"])
def test_a_call_cancelled_while_its_tokens_are_counted_returns_its_last_batch(name: str, how: str) -> None:
    lasts: dict[str, Sequence[Event]] = {
        "cut here": [Delta(0, " two.<eo>junk")],
        "ended by the engine": [Delta(0, " two.<e"), STOP],
    }
    last = lasts[name]

    async def counts(written: str) -> Usage:
        if how == "failed":
            raise UpstreamDisconnected("the tokenizer is gone")
        await asyncio.sleep(9)
        return Usage(1, len(written))

    async def run() -> str:
        upstream = ScriptedEvents([[BEGUN, Delta(0, "I add one and one:")], last], None)
        response = ResponseStream(exchange(stops=("<eo>",)), upstream, CallTimeline("chat", "req_1", 0.0), counts)
        out = [*await response.next_batch()]
        task = asyncio.ensure_future(_rest(response, out))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, UpstreamDisconnected)):
            await task
        out += await response.take_pending()
        assert not any(isinstance(event, Finish) for event in out[:-1])
        return "".join(event.text for event in out if isinstance(event, Delta))

    text = " two." if name == "cut here" else " two.<e"
    assert asyncio.run(run()) == f"I add one and one:{text}"


async def _rest(response: ResponseStream, out: list[Event]) -> None:
    while batch := await response.next_batch():
        out += batch


COUNTS: dict[str, tuple[Batches, list[Usage]]] = {  # name: (batches, usage of the response)
    "an answer without counts": ([[BEGUN, Delta(0, "ab")], [Delta(0, "c"), STOP]], [Usage(1, 3, source="estimated")]),
    "cut here": ([[BEGUN, Delta(0, "ab<eob>cd")]], [Usage(1, 2, source="estimated")]),
    "an answer too long to keep": (
        [[BEGUN, Delta(0, "a" * (MAX_COUNTED // 2))], [Delta(0, "b" * MAX_COUNTED), STOP]],
        [],
    ),
    "an answer with counts": ([[BEGUN, Delta(0, "ab"), STOP, Usage(4, 4)]], [Usage(4, 4)]),
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_gateway_counts_tokens_if_the_upstream_did_not(name: str) -> None:
    batches, counted = COUNTS[name]
    out, code, _ = read_batches(batches, counts=True, stops=("<eob>",))
    assert code is None
    assert [event for batch in out for event in batch if isinstance(event, Usage)] == counted


LASTS: dict[str, Batches] = {
    "the engine's end": [[BEGUN, Delta(0, "a")], [STOP, Usage(1, 2)]],
    "all at once": [[BEGUN, Delta(0, "a"), STOP]],
    "held text": [[BEGUN, Delta(0, "a")], [Delta(0, "<e"), STOP]],
    "a stop cut by the gateway": [[BEGUN, Delta(0, "a")], [Delta(0, "<eob>b"), Delta(0, "c"), STOP]],
}


@pytest.mark.parametrize("name", LASTS)
async def test_the_last_batch_is_marked_as_exhausted(name: str) -> None:
    """The edge then ends the stream without another call, which would return nothing."""
    request = exchange(stream=True, stops=("<eob>",))
    response = ResponseStream(request, ScriptedEvents(list(LASTS[name]), None), CallTimeline("chat", "r", 0.0), None)
    batches: Batches = []
    while not response.exhausted:
        batches.append(await response.next_batch())
    assert not await response.next_batch()
    assert len(batches) == len(LASTS[name])
    assert any(isinstance(event, Finish) for event in batches[-1])


async def test_a_batch_before_an_error_is_not_marked_as_exhausted() -> None:
    upstream = ScriptedEvents([[BEGUN, Delta(0, "a")], [Usage(1, 2)]], None)
    response = ResponseStream(exchange(stream=True), upstream, CallTimeline("chat", "r", 0.0), None)
    assert list(await response.next_batch()) == [BEGUN, Delta(0, "a")]
    assert list(await response.next_batch()) == [Usage(1, 2)]
    assert not response.exhausted
    with pytest.raises(GatewayError, match="without a finish_reason"):
        await response.next_batch()
