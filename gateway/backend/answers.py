"""What did the model's server say? Chunks in, events out, for both shapes OpenAI has for a choice.

An ``Answer`` knows how far each choice has come and whether the answer is whole. A chunk it cannot read is an
error, because skipping it could lose text. A whole JSON answer is one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

from gateway.backend.statuses import error_in_body
from gateway.core.errors import UpstreamError, UpstreamIncomplete, UpstreamInvalidStream
from gateway.core.events import Begun, Delta, Event, Finish, TokenLogprob, Usage
from gateway.core.frozen import dataclass
from gateway.stream.finish import finish_reason
from gateway.stream.surrogates import SurrogateJoiner, replace_lone
from gateway.wire.logprobs import from_chat, from_completions

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
