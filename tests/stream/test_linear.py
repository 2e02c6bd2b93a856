"""Text of a model that wants to be expensive: the work grows with its length, never with the square of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from gateway.core.errors import UpstreamError
from gateway.stream.completion_builder import CompletionBuilder
from gateway.stream.sse import SseParser
from gateway.stream.surrogates import SurrogateJoiner, replace_lone
from metatemplate.answers.reasoning import Reasoning
from metatemplate.answers.stops.stop_cutter import StopCutter
from metatemplate.answers.stops.stop_search import StopScanner
from metatemplate.values.answer_markers import Thinking
from metatemplate.values.events import Delta, Event, Finish, TokenLogprob
from tests.support.growth import assert_linear

THINKING = Thinking("<think>", "</think>")


def pieces(text: str, step: int) -> list[str]:
    return [text[at : at + step] for at in range(0, len(text), step)]


def sse(again: bytes, step: int) -> Callable[[int], object]:
    def run(size: int) -> None:
        data, parser = again * (size // len(again)), SseParser()
        with suppress(UpstreamError):
            for at in range(0, len(data), step):
                parser.feed(data[at : at + step])

    return run


def stops(stop: str, again: str, step: int) -> Callable[[int], object]:
    def run(size: int) -> None:
        scanner = StopScanner((stop,))
        for piece in pieces(again * (size // len(again)), step):
            scanner.feed(piece)

    return run


def thinks(lead: str, again: str, step: int) -> Callable[[int], object]:
    def run(size: int) -> None:
        reasoning = Reasoning(THINKING)
        for piece in pieces(lead + again * (size // len(again)), step):
            reasoning.feed(piece)
        reasoning.end()

    return run


def cut(*events: Event) -> Callable[[int], object]:
    def run(size: int) -> None:
        cutter = StopCutter(("<eob>",))
        for _ in range(size // 10):
            cutter.process(events)
        cutter.flush()

    return run


def joins(text: str) -> Callable[[int], object]:
    def run(size: int) -> None:
        joiner = SurrogateJoiner()
        for _ in range(size):
            joiner.feed(text)
        replace_lone(text * size)

    return run


def folds(*events: Event) -> Callable[[int], object]:
    def run(size: int) -> None:
        fold = CompletionBuilder()
        for _ in range(size // 10):
            for event in events:
                fold.add(event)
        fold.add(Finish(0, "stop"))
        fold.result()

    return run


def token(text: str) -> TokenLogprob:
    return TokenLogprob(text, -0.1)


def call(at: int, name: str) -> Delta:
    return Delta(0, fields={"tool_calls": [{"index": at, "id": name, "function": {"arguments": "a"}}]})


WORK: dict[str, Callable[[int], object]] = {
    "a line byte by byte": sse(b"data: a", 1),
    "empty data lines": sse(b"data:\n", 50_000),
    "comments": sse(b":\n", 50_000),
    "ends of lines": sse(b"\r\n", 1),
    "empty events": sse(b"data:\n\n", 50_000),
    "a stop that nearly matches": stops("a" * 200 + "b", "a", 1),
    "a stop within itself": stops("abab" * 20 + "c", "ab", 7),
    "markers that never end": thinks("<think>", "</thin", 1),
    "markers begun": thinks("", "<thin", 3),
    "text before a stop": cut(Delta(0, "<eo"), Delta(0, "<"), Delta(0, "b")),
    "nothing but a stop begun": cut(Delta(0, "", extras={"a": 1})),
    "tokens that spell nothing": cut(Delta(0, "a", (token(""),))),
    "tokens that spell another text": cut(Delta(0, "a", (token("b"),))),
    "tokens ahead of their text": cut(Delta(0, "", (token("ab"),))),
    "halves of characters": joins("\ud83d"),
    "other halves of characters": joins("\ude00"),
    "calls with one index": folds(call(0, "")),
    "calls with their id alone": folds(Delta(0, fields={"tool_calls": [{"id": "x", "function": {"arguments": "a"}}]})),
}


@pytest.mark.parametrize("name", WORK)
def test_the_work_is_linear(name: str) -> None:
    assert_linear(WORK[name], 20_000)


def test_calls_with_ids_of_their_own_are_folded_in_linear_work() -> None:
    def run(size: int) -> None:
        fold = CompletionBuilder()
        for at in range(size):
            fold.add(Delta(0, fields={"tool_calls": [{"id": f"call{at}", "function": {"arguments": "a"}}]}))
        fold.add(Finish(0, "stop"))
        fold.result()

    assert_linear(run, 5_000)
