"""The same bytes of an engine give the client the same message, streamed or not, at every slicing.

An engine's answer is written as one JSON body and as a stream. Both go through the gateway's steps from bytes to bytes:
the chunks are read, cut at stops, parsed, and written for the client. The client folds a stream as OpenAI's SDK does.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from openai.lib.streaming._deltas import accumulate_delta

from gateway.backend.openai.answer.events import CHAT_FORMAT, COMPLETIONS_FORMAT, ChoiceFormat, ChunkReader
from gateway.calls.answer.response import ResponseStream
from gateway.calls.timeline import CallTimeline
from gateway.stream.sse import SseParser
from gateway.stream.surrogates import loads, maybe_lone
from gateway.wire.responses import AnswerHead, ChatWriter
from metatemplate.answers.output_parser import OutputParser, ParserOptions
from metatemplate.answers.tool_calls.format import Format
from metatemplate.answers.tool_calls.registry import FORMATS
from metatemplate.values.answer_markers import Thinking
from metatemplate.values.events import Completion, Event
from tests.metatemplate.answers.test_tool_calls import CASES, NAMES, TOKENS, format_of
from tests.policy.responses import exchange
from tests.stream.slicing import sliced

Message = dict[str, Any]
"""A message in OpenAI's form; or a choice, with its message, finish reason and log probabilities."""

USAGE = {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
STOPS = ("<eob>", "\n\nQ:")
HALF = re.compile("[\ud800-\udfff]")
EVERY_SPLIT = 50
"""Texts up to this length are split at every place."""
RANDOM_SLICINGS = 3
"""For each text, besides the slicings that are the same for all texts."""
SAMPLES = 2
"""Texts of each format that each way of reading is tested with; ``calls`` is tested with all."""


@dataclass(frozen=True)
class Script:
    """The answer of an engine, and how the gateway reads it."""

    texts: tuple[str, ...]
    """One text for each choice."""
    reasons: tuple[str, ...] = ("stop",)
    parsing: ParserOptions | None = None
    stops: tuple[str, ...] = ()
    scored: bool = False
    """True: the engine gives the log probabilities, of one token for each character."""
    form: ChoiceFormat = COMPLETIONS_FORMAT

    @property
    def ends_early(self) -> bool:
        """True: the gateway may end the answer before the engine, and then does not read the counts of a stream."""
        return bool(self.stops) or (self.parsing is not None and self.parsing.one_call)


# ---------------------------------------------------------------- the engine


def choice(script: Script, index: int, text: str, reason: str | None = None) -> dict[str, Any]:
    scores = {"tokens": list(text), "token_logprobs": [-0.5] * len(text), "top_logprobs": None}
    logprobs = scores if script.scored and text else None
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
    value = {"id": "e", "object": "text_completion", "choices": choices, **more}
    written = json.dumps(value, ensure_ascii=False)
    # A half of a character has no bytes, so an engine can only write it as an escape.
    return json.dumps(value).encode() if HALF.search(written) else written.encode()


def body(script: Script) -> bytes:
    answers = enumerate(zip(script.texts, script.reasons, strict=True))
    return chunk([choice(script, at, text, reason) for at, (text, reason) in answers], usage=USAGE)


def stream(script: Script, pieces: Sequence[tuple[int, str]]) -> list[bytes]:
    """The events of a stream. ``pieces``: (choice, text) in order."""
    chunks = [chunk([choice(script, at, text)]) for at, text in pieces]
    chunks += [chunk([choice(script, at, "", reason)]) for at, reason in enumerate(script.reasons)]
    chunks.append(chunk([], usage=USAGE))
    return [b"data: %b\n\n" % one for one in (*chunks, b"[DONE]")]


# ---------------------------------------------------------------- the gateway


class EngineEvents:
    """``Events`` of a response whose bytes arrive in these pieces."""

    exhausted = False

    def __init__(self, script: Script, pieces: Iterable[bytes], is_stream: bool) -> None:
        self._batches = batches(script, pieces, is_stream)

    async def next_batch(self) -> Sequence[Event]:
        return next(self._batches, ())


def batches(script: Script, pieces: Iterable[bytes], is_stream: bool) -> Iterator[Sequence[Event]]:
    reader, parser = ChunkReader(script.form, "m/0", len(script.texts)), SseParser()
    for piece in pieces:
        batch: list[Event] = []
        for data in [data for _, data in parser.feed(piece)] if is_stream else [piece]:
            if data != b"[DONE]":
                batch += reader.read(loads(data), surrogates=maybe_lone(data))
        if batch:
            yield batch
    yield reader.end()


def response(script: Script, events: EngineEvents, streams: bool) -> ResponseStream:
    choices = len(script.texts)
    request = exchange(n=choices, stops=script.stops, stream=streams, params={"logprobs": 0} if script.scored else {})
    parser = None if script.parsing is None else OutputParser(script.parsing)
    return ResponseStream(request, events, CallTimeline("chat", "r", 0.0), None, parser)


def writer() -> ChatWriter:
    return ChatWriter(AnswerHead(id="i", model="m", created=1, include_usage=True))


async def whole(script: Script, pieces: Iterable[bytes], is_stream: bool) -> tuple[list[Message], Any]:
    """What a client has that does not stream. ``is_stream``: the engine answers with a stream."""
    answer = await response(script, EngineEvents(script, pieces, is_stream), False).whole()
    assert isinstance(answer, Completion)
    told = writer().whole(answer)
    return [plain(choice) for choice in told["choices"]], told["usage"]


async def streamed(script: Script, pieces: Iterable[bytes]) -> tuple[list[Message], Any]:
    """What a client has at the end of a stream."""
    one, said, upstream = writer(), b"", response(script, EngineEvents(script, pieces, True), True)
    while batch := await upstream.next_batch():
        said += one.frames(batch)
    return folded(said + one.usage())


# ---------------------------------------------------------------- the client


def folded(said: bytes) -> tuple[list[Message], Any]:
    """Join the chunks as ``openai.lib.streaming.chat`` does: each delta is added to the message of its choice."""
    choices: dict[int, Message] = {}
    usage = None
    for frame in said.split(b"\n\n")[:-1]:
        chunk = json.loads(frame.removeprefix(b"data: "))
        usage = chunk["usage"] or usage
        for said_now in chunk["choices"]:
            known = choices.setdefault(said_now["index"], {"message": {}, "finish_reason": None, "logprobs": None})
            assert known["finish_reason"] is None, "nothing follows the end of a choice"
            accumulate_delta(known["message"], said_now["delta"])
            known["finish_reason"] = said_now["finish_reason"]
            if said_now["logprobs"] is not None:
                known["logprobs"] = known["logprobs"] or {"content": [], "refusal": None}
                known["logprobs"]["content"] += said_now["logprobs"]["content"]
    return [plain(choices[index]) for index in sorted(choices)], usage


def plain(choice: Message) -> Message:
    """The choice without the ids of its calls, which are random, and without their indexes, which only streams have."""
    message = {"content": None, **choice["message"]}
    ids = [call.pop("id") for call in message.get("tool_calls", ())]
    assert len(set(ids)) == len(ids)
    for at, call in enumerate(message.get("tool_calls", ())):
        assert call.pop("index", at) == at
    return {"message": message, "finish_reason": choice["finish_reason"], "logprobs": choice["logprobs"]}


# ---------------------------------------------------------------- the property


def halves(text: str) -> list[str]:
    """The text in UTF-16 code units: an engine may write the two halves of a character in two chunks."""
    data = text.encode("utf-16-le")
    return [data[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(data), 2)]


def slicings(text: str, rng: random.Random, every: bool, whole_characters: bool) -> Iterator[list[str]]:
    """At once, one by one, at random places, and (``every``) at every place."""
    units = tuple(text) if whole_characters else tuple(halves(text))
    size = len(units)
    places = [[], list(range(1, size))]
    places += [sorted(rng.sample(range(size + 1), min(size, rng.randint(1, 8)))) for _ in range(RANDOM_SLICINGS)]
    places += [[at] for at in range(1, size)] if every and size <= EVERY_SPLIT else []
    for cut in places:
        yield ["".join(part) for part in sliced(units, cut)]


def mixed(parts: Sequence[Sequence[str]], rng: random.Random) -> list[tuple[int, str]]:
    """The pieces of several choices, in a random order that keeps the order of each choice."""
    left = [list(part) for part in parts]
    pieces = []
    while any(left):
        at = rng.choice([at for at, part in enumerate(left) if part])
        pieces.append((at, left[at].pop(0)))
    return pieces


def cut(events: list[bytes], rng: random.Random) -> list[bytes]:
    """The stream in one piece, event by event, or cut at any byte."""
    said = b"".join(events)
    places = sorted(rng.sample(range(len(said)), 6))
    return rng.choice([[said], events, sliced(said, places)])


async def check(script: Script, rng: random.Random, every: bool) -> None:
    """Compare the streams of a script in many slicings with its whole answer."""
    expected, usage = await whole(script, [body(script)], False)
    assert usage == USAGE
    for slicing in zip(*[slicings(text, rng, every, script.scored) for text in script.texts], strict=False):
        pieces = cut(stream(script, mixed(slicing, rng)), rng)
        found, counted = await streamed(script, pieces)
        assert found == expected, slicing
        assert counted == USAGE or script.ends_early, slicing
        assert (await whole(script, pieces, True))[0] == expected, slicing


CLOSED, OPEN = Thinking("<think>", "</think>"), Thinking("<think>", "</think>", open=True)
THOUGHT = "<think>\nhm 😀</think>\n\n"
READINGS: dict[str, Callable[[Format, str, str], Script]] = {
    # name: how the gateway reads the answer; the arguments: the format, a text and another text with calls
    "calls": lambda calls, text, other: Script((text,), ("stop",), ParserOptions(None, calls, NAMES)),
    "calls, out of tokens": lambda calls, text, other: Script((text,), ("length",), ParserOptions(None, calls, NAMES)),
    "one call": lambda calls, text, other: Script(
        (text + other,), ("stop",), ParserOptions(None, calls, NAMES, one_call=True)
    ),
    "calls after reasoning": lambda calls, text, other: Script(
        (THOUGHT + text,), ("stop",), ParserOptions(CLOSED, calls, NAMES)
    ),
    "two choices in open reasoning, with stops": lambda calls, text, other: Script(
        (f"{other}</think>{text}<eob>{other}", f"hm</think>{other}\n\nQ: {text}"),
        ("stop", "length"),
        ParserOptions(OPEN, calls, NAMES, foreign_stops=frozenset(STOPS)),
        STOPS,
    ),
    "scored calls after reasoning, with stops": lambda calls, text, other: Script(
        (f"{THOUGHT}{text}<eob>{other}", text), ("stop", "stop"), ParserOptions(CLOSED, calls, NAMES), STOPS, True
    ),
    "only reasoning": lambda calls, text, other: Script((text,), ("length",), ParserOptions(OPEN, calls, NAMES)),
    "a call that the prompt began": lambda calls, text, other: Script(
        (text[9:], other[4:]), ("stop", "stop"), ParserOptions(None, calls, NAMES, opened=text[:9])
    ),
    "no parser": lambda calls, text, other: Script((text, f"a<eob>{other}"), ("stop", "length"), None, STOPS),
    "no parser, scored": lambda calls, text, other: Script((text,), ("stop",), None, STOPS, True),
}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("name", [*[name for name in FORMATS if name != "lazyllm"], *TOKENS])
def test_a_stream_is_the_whole_answer_in_pieces(name: str, reading: str) -> None:
    texts = [text for one, text, _ in CASES.values() if one == name]
    every = reading == "calls"

    async def run() -> None:
        rng = random.Random(f"{name} {reading}")
        for text in texts if every else rng.sample(texts, min(len(texts), SAMPLES)):
            await check(READINGS[reading](format_of(name), text, rng.choice(texts)), rng, every)

    asyncio.run(run())


CALLS = [
    {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
    {"id": "b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
]
MESSAGES: dict[str, Message] = {  # what an API model answers
    "text": {"content": "4 😀"},
    "nothing": {"content": ""},
    "null": {"content": None},
    "reasoning alone": {"content": None, "reasoning_content": "hm, hm"},
    "reasoning and text": {"content": "4", "reasoning": "hm"},
    "calls": {"content": None, "tool_calls": CALLS},
    "an empty text and calls": {"content": "", "tool_calls": CALLS},
    "text and calls": {"content": "I add.", "reasoning_content": "hm", "tool_calls": CALLS[:1]},
    "a refusal": {"content": None, "refusal": "I would rather not."},
    "calls of the old kind": {"content": None, "function_call": {"name": "add", "arguments": "{}"}},
}


def fragments(message: Message) -> list[Message]:
    """The deltas of a message, a character each."""
    deltas: list[Message] = [{"role": "assistant", "content": message["content"] and ""}]
    for key in ("reasoning_content", "reasoning", "content", "refusal"):
        deltas += [{key: piece} for piece in message.get(key) or ""]
    for at, call in enumerate(message.get("tool_calls", ())):
        head = {**call, "index": at, "function": {**call["function"], "arguments": ""}}
        rest = [{"index": at, "function": {"arguments": piece}} for piece in call["function"]["arguments"]]
        deltas += [{"tool_calls": [piece]} for piece in (head, *rest)]
    if "function_call" in message:
        name, arguments = message["function_call"].values()
        deltas += [{"function_call": {"name": name, "arguments": ""}}, {"function_call": {"arguments": arguments}}]
    return deltas


@pytest.mark.parametrize("name", MESSAGES)
def test_a_stream_of_an_api_model_is_its_whole_answer_in_pieces(name: str) -> None:
    message = MESSAGES[name]
    reason = "tool_calls" if "tool_calls" in message else "stop"
    script = Script(("",), (reason,), form=CHAT_FORMAT)
    end = {"index": 0, "finish_reason": reason}
    told = chunk([{**end, "message": {"role": "assistant", **message}}], usage=USAGE)
    chunks = [chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in fragments(message)]
    events = [b"data: %b\n\n" % one for one in (*chunks, chunk([{**end, "delta": {}}]), chunk([], usage=USAGE))]

    async def run() -> None:
        expected = await whole(script, [told], False)
        assert expected[0][0]["message"]["content"] == (message["content"] or (None if reason == "tool_calls" else ""))
        rng = random.Random(name)
        for pieces in [cut(events, rng) for _ in range(6)]:
            assert await streamed(script, pieces) == expected
            assert await whole(script, pieces, True) == expected

    asyncio.run(run())
