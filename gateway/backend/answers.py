"""What did the model's server answer? JSON or a stream, chat or completions, becomes the same events.

Three readers on top of each other: the body is looked at to see *whether* it is a stream (servers mislabel
both, row B21), server-sent events are taken apart, and an ``Answer`` turns chunks into events and knows
whether the answer is whole. A whole JSON answer is one chunk.

A stream may end in these ways:
    ``[DONE]`` or end of body, every choice finished   normal
    ``[DONE]`` or end of body, a choice unfinished     UpstreamIncomplete (C05, C06)
    connection lost, every choice finished             normal: only the count may be missing
    connection lost, a choice unfinished               UpstreamDisconnected (C01, C02)
    an error object, or ``event: error``               that error under our own name (C08)
    an event that cannot be read                       UpstreamInvalidStream (C09)
What follows ``[DONE]`` is not read (C07).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from gateway.backend.http import HttpAnswer
from gateway.backend.statuses import error_in_body
from gateway.core.errors import (
    GatewayError,
    UpstreamDisconnected,
    UpstreamError,
    UpstreamIncomplete,
    UpstreamInvalidResponse,
    UpstreamInvalidStream,
)
from gateway.core.events import Begun, Delta, Document, Event, Finish, TokenLogprob, Usage
from gateway.stream.finish import finish_reason
from gateway.stream.sse import SseEvent, SseParser
from gateway.stream.surrogates import SurrogateJoiner, loads, replace_lone
from gateway.wire.logprobs import from_chat, from_completions

EVENT_STREAM = "text/event-stream"
_BLANK = b"\xef\xbb\xbf \t\r\n"
_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
_PEEK = 64

_ANSWER_KEYS = frozenset({"id", "object", "created", "model", "choices", "usage"})
_END_KEYS = ("stop_reason", "matched_stop")
"""Choice keys that tell which stop matched: vLLM's and SGLang's."""
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


# ---------------------------------------------------------------- two shapes of a choice


@dataclass(frozen=True, slots=True)
class Said:
    """What one choice of one chunk says, whatever its shape."""

    text: object
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """How ``/completions`` and ``/chat/completions`` write the same thing."""

    said: Callable[[Mapping[str, Any]], Said]
    logprobs: Callable[[Any], tuple[TokenLogprob, ...] | None]
    keys: frozenset[str]
    """The keys of a choice that are read; the others are extras."""


def _chat_said(choice: Mapping[str, Any]) -> Said:
    said = choice.get("delta")
    if said is None:
        said = choice.get("message") or {}
        if isinstance(said, dict) and isinstance(said.get("tool_calls"), list):
            # A whole message numbers its calls by position, a delta by index; events are deltas.
            calls = [{"index": at, **call} for at, call in enumerate(said["tool_calls"]) if isinstance(call, dict)]
            said = {**said, "tool_calls": calls}
    if not isinstance(said, dict):
        return Said(said, {})
    fields = {
        key: value for key, value in said.items() if key not in ("role", "content") and value not in (None, "", [])
    }
    return Said(said.get("content"), fields)


COMPLETIONS = Shape(
    said=lambda choice: Said(choice.get("text"), {}),
    logprobs=from_completions,
    keys=frozenset({"index", "text", "logprobs", "finish_reason"}),
)
CHAT = Shape(
    said=_chat_said,
    logprobs=from_chat,
    keys=frozenset({"index", "delta", "message", "logprobs", "finish_reason"}),
)


# ---------------------------------------------------------------- chunks → events


@dataclass(slots=True)
class _Choice:
    """How far one choice has come."""

    joiner: SurrogateJoiner = field(default_factory=SurrogateJoiner)
    finished: bool = False


class Answer:
    """One answer being read: chunks in, events out."""

    def __init__(self, shape: Shape, target: str, asked: int, notices: tuple[str, ...] = ()) -> None:
        self._shape = shape
        self._target = target
        self._asked = asked
        """How many choices there may be."""
        self._notices = notices
        self._begun = False
        self._choices: dict[int, _Choice] = {}
        self._usage: Usage | None = None
        self.invalid: type[UpstreamError] = UpstreamInvalidStream
        """The error for what cannot be read; ``UpstreamInvalidResponse`` for a whole answer."""

    @property
    def begun_choices(self) -> int:
        """How many choices have been heard of."""
        return len(self._choices)

    @property
    def finished(self) -> bool:
        """Every choice that began has ended, and there is at least one."""
        return bool(self._choices) and all(choice.finished for choice in self._choices.values())

    def take(self, chunk: object, *, odd: bool = False) -> list[Event]:
        """The events of one chunk, or of a whole answer.

        ``odd``: the JSON may hold lone surrogates (row C13). Raises the error that the chunk carries, or
        ``invalid`` when it is no chunk: skipping it could lose text.
        """
        if not isinstance(chunk, dict):
            raise self.invalid("the model's server sent JSON that is not an object")
        if (error := error_in_body(chunk)) is not None:
            raise error
        usage = chunk.get("usage")
        choices = chunk.get("choices")
        if choices is None and isinstance(usage, dict):
            choices = []
        if not isinstance(choices, list):
            raise self.invalid("the model's server sent an answer without choices")
        events: list[Event] = []
        if not self._begun:
            self._begun = True
            fields = {key: value for key, value in chunk.items() if key not in _ANSWER_KEYS and value is not None}
            events.append(Begun(self._target, fields=replace_lone(fields) if odd else fields, notices=self._notices))
        self._usage = read_usage(usage) or self._usage
        for position, choice in enumerate(choices):
            events.extend(self._take_choice(choice, position, odd))
        return events

    def end(self) -> list[Event]:
        """The last events; ``UpstreamIncomplete`` when the answer is not whole."""
        if not self._choices:
            raise UpstreamIncomplete("the model's server ended its answer before it said anything")
        if not self.finished:
            raise UpstreamIncomplete("the model's server ended its answer without a finish_reason")
        return [self._usage] if self._usage is not None else []

    def _take_choice(self, choice: object, position: int, odd: bool) -> Iterator[Event]:
        if not isinstance(choice, dict):
            raise self.invalid("the model's server sent a choice that is not an object")
        index = choice.get("index", position)
        if type(index) is not int or not 0 <= index < self._asked:
            raise self.invalid(f"the model's server sent a choice beyond the {self._asked} asked for")
        said = self._shape.said(choice)
        if not isinstance(said.text, str | None):
            raise self.invalid("the model's server sent text that is not a string")
        reason = finish_reason(choice.get("finish_reason"))
        state = self._choices.setdefault(index, _Choice())
        if state.finished:
            if said.text or said.fields:
                raise self.invalid(f"the model's server sent more text for choice {index} after its finish_reason")
            return
        text = state.joiner.feed(said.text or "") + (state.joiner.flush() if reason else "")
        fields = replace_lone(said.fields) if odd else said.fields
        extras = {key: value for key, value in choice.items() if key not in self._shape.keys and value is not None}
        last = {key: extras.pop(key) for key in _END_KEYS if key in extras} if reason else {}
        raw = choice.get("logprobs")
        if not isinstance(raw, dict | None):
            raise self.invalid("the model's server sent logprobs that are not an object")
        logprobs = self._shape.logprobs(replace_lone(raw) if odd else raw) if raw else None
        if text or logprobs or fields or extras:
            yield Delta(index, text, logprobs or None, fields, replace_lone(extras) if odd else extras)
        if reason:
            state.finished = True
            matched = next((value for value in last.values() if isinstance(value, str | int)), None)
            yield Finish(index, reason, matched, extras=last)


def read_usage(usage: object) -> Usage | None:
    """The counts of a ``usage`` object; None when they are missing or absurd (row C30)."""
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens", 0)
    if type(prompt) is not int or type(completion) is not int or prompt < 0 or completion < 0:
        return None
    details = {key: value for key, value in usage.items() if key not in _COUNTS and value is not None}
    return Usage(prompt, completion, details=details)


# ---------------------------------------------------------------- bodies → chunks


async def read_events(http: HttpAnswer, answer: Answer) -> AsyncGenerator[Event, None]:
    """The events of a successful reply, be it JSON or a stream."""
    if await _is_stream(http):
        async with aclosing(_read_stream(http, answer)) as stream:
            async for event in stream:
                yield event
    else:
        answer.invalid = UpstreamInvalidResponse
        body = await http.read()
        events = answer.take(parse_json(body), odd=_maybe_odd(body))
        if not answer.begun_choices:
            raise UpstreamInvalidResponse("the model's server sent an answer without choices")
        for event in events + answer.end():
            yield event


async def read_document(http: HttpAnswer, target: str) -> AsyncGenerator[Event, None]:
    """The events of an answer that is no completion: embeddings."""
    body = parse_json(await http.read())
    if not isinstance(body, dict):
        raise UpstreamInvalidResponse("the model's server sent JSON that is not an object")
    if (error := error_in_body(body)) is not None:
        raise error
    if not isinstance(body.get("data"), list):
        raise UpstreamInvalidResponse("the model's server sent an answer without data")
    yield Begun(target)
    yield Document(body)
    if (usage := read_usage(body.get("usage"))) is not None:
        yield usage


def parse_json(body: bytes) -> Any:
    """The JSON in a body; ``UpstreamInvalidResponse`` when there is none."""
    try:
        return loads(body)
    except ValueError:
        raise UpstreamInvalidResponse("the model's server answered with something that is not JSON") from None


async def _is_stream(http: HttpAnswer) -> bool:
    """What the body looks like decides; the content type only where the looks do not."""
    head = (await http.peek(1)).lstrip(_BLANK)
    if head[:1] in (b"{", b"["):
        return False
    if http.content_type == EVENT_STREAM:
        return True
    if len(head) < _PEEK:
        head = (await http.peek(_PEEK)).lstrip(_BLANK)
    return head.startswith(_SSE_STARTS)


async def _read_stream(http: HttpAnswer, answer: Answer) -> AsyncGenerator[Event, None]:
    parser = SseParser()
    try:
        async with aclosing(http.chunks()) as chunks:
            async for chunk in chunks:
                for sse in parser.feed(chunk):
                    if _is_done(sse):
                        http.complete = True
                        for event in answer.end():
                            yield event
                        return
                    for event in _read_event(sse, answer):
                        yield event
    except UpstreamDisconnected:
        if not answer.finished:
            raise
    else:
        for sse in parser.close():
            if not _is_done(sse):
                for event in _read_event(sse, answer):
                    yield event
    for event in answer.end():
        yield event


def _is_done(sse: SseEvent) -> bool:
    return len(sse.data) < 16 and sse.data.strip() == b"[DONE]"


def _read_event(sse: SseEvent, answer: Answer) -> list[Event]:
    if not sse.data:
        return []
    try:
        chunk = loads(sse.data)
    except ValueError:
        if sse.event == "error":
            raise UpstreamError("the model's server reported an error in its stream") from None
        raise UpstreamInvalidStream("the model's server sent an event that is not JSON") from None
    if sse.event == "error":
        raise _stream_error(chunk)
    return answer.take(chunk, odd=_maybe_odd(sse.data))


def _stream_error(chunk: object) -> GatewayError:
    """``event: error`` with any data is an error, even where the data does not look like one."""
    told = error_in_body(chunk) if isinstance(chunk, dict) else None
    return told or UpstreamError("the model's server reported an error in its stream")


def _maybe_odd(data: bytes) -> bool:
    return b"\\ud" in data or b"\\uD" in data
