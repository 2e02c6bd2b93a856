"""What did the model's server say? Chunks in, events out, for both shapes OpenAI has for a choice.

An ``Answer`` knows how far each choice has come and whether the answer is whole. A chunk it cannot read is an
error, because skipping it could lose text. A whole JSON answer is one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gateway.backend.openai.error_mapping import error_in_body, may_be_error
from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import UpstreamError, UpstreamIncomplete, UpstreamInvalidStream
from gateway.core.events import Begun, Delta, Event, Finish, TokenLogprob, Usage
from gateway.core.frozen import dataclass
from gateway.stream.finish_reason import finish_reason
from gateway.stream.surrogates import SurrogateJoiner, replace_lone
from gateway.wire.logprobs import from_chat, from_completions

ANSWER_KEYS = frozenset({"id", "object", "created", "model", "choices", "usage"})
"""The keys of an answer that are read, or ours to write; the others are passed on."""
_END_KEYS = ("stop_reason", "matched_stop")
"""Choice keys that tell which stop matched: vLLM's and SGLang's."""
_SPOKEN = frozenset({"role", "content"})
MAX_COUNT = 2**53
"""More tokens than this are no count: numbers beyond it are not exact everywhere."""
COUNTS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
"""The keys of ``usage`` that are read; the others are details."""


# ---------------------------------------------------------------- two shapes of a choice


Said = tuple[object, Mapping[str, Any]]
"""What one choice of one chunk says, whatever its shape: its text, and the other fields beside it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How ``/completions`` and ``/chat/completions`` write the same thing."""

    said: Callable[[Mapping[str, Any]], Said] | None
    """None: the choice's ``text``, and no fields."""
    only_text: Callable[[Mapping[str, Any]], Any] | None
    """The text of a choice in a stream's chunk, if it can be had in one look; anything else: look closer.
    None: it is the choice's ``text``."""
    whole_text: Callable[[Mapping[str, Any]], Any] | None
    """The text of a choice in a whole answer, on the same terms."""
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
        return said, EMPTY_MAPPING
    fields = {
        key: value for key, value in said.items() if key not in ("role", "content") and value not in (None, "", [])
    }
    return said.get("content"), fields


def _chat_text(choice: Mapping[str, Any]) -> object:
    said = choice.get("delta")
    if type(said) is not dict or (len(said) != 1 and said.keys() != _SPOKEN):
        return None
    return said.get("content")


def _chat_whole_text(choice: Mapping[str, Any]) -> object:
    said = choice.get("message")
    if type(said) is not dict or choice.get("delta") is not None:
        return None
    for key in said.keys() - _SPOKEN:
        if said[key] not in (None, "", []):
            return None
    return said.get("content")


COMPLETIONS = Shape(
    said=None,
    only_text=None,
    whole_text=None,
    logprobs=from_completions,
    keys=frozenset({"index", "text", "logprobs", "finish_reason"}),
)
CHAT = Shape(
    said=_chat_said,
    only_text=_chat_text,
    whole_text=_chat_whole_text,
    logprobs=from_chat,
    keys=frozenset({"index", "delta", "message", "logprobs", "finish_reason"}),
)


# ---------------------------------------------------------------- chunks → events


@dataclass(slots=True)
class _Choice:
    """How far one choice has come."""

    joiner: SurrogateJoiner | None = None
    """Since half a character may have come."""
    finished: bool = False


class Answer:
    """One answer being read: chunks in, events out."""

    __slots__ = (
        "_asked",
        "_choices",
        "_notices",
        "_only_text",
        "_private",
        "_shape",
        "_target",
        "_usage",
        "begun",
        "invalid",
    )

    def __init__(
        self, shape: Shape, target: str, asked: int, notices: tuple[str, ...] = (), private: tuple[str, ...] = ()
    ) -> None:
        """``private``: see ``statuses.one_safe_line``."""
        self._shape = shape
        self._only_text = shape.only_text
        self._target = target
        self._asked = asked
        """How many choices there may be."""
        self._notices = notices
        self._private = private
        self.begun = False
        """A chunk has been read; until then none is ``ordinary``."""
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
        if may_be_error(chunk) and (error := error_in_body(chunk, self._private)) is not None:
            raise error
        usage = chunk.get("usage")
        choices = chunk.get("choices")
        if choices is None and ("choices" in chunk or isinstance(usage, dict)):
            choices = []
        if not isinstance(choices, list):
            raise self.invalid("the model's server sent an answer without choices")
        events: list[Event] = []
        if not self.begun:
            self.begun = True
            fields = EMPTY_MAPPING if chunk.keys() <= ANSWER_KEYS else self._fields(chunk, odd)
            events.append(Begun(self._target, 1, fields, self._notices))
        if usage is not None:
            self._usage = read_usage(usage, self.invalid) or self._usage
        for position, choice in enumerate(choices):
            self._take_choice(choice, position, odd, events)
        return events

    def ordinary(self, chunk: object) -> Delta | None:
        """The one event of a chunk that only says more of a choice, as nearly all do; None: ``take`` has to look.

        For chunks without lone surrogates, and exactly what ``take`` would give.
        """
        if type(chunk) is not dict or chunk.get("error") is not None or chunk.get("object") == "error":
            return None
        choices = chunk.get("choices")
        if type(choices) is not list or len(choices) != 1 or chunk.get("usage") is not None:
            return None
        choice = choices[0]
        # Beside the index and what is said everything is null: no end, no log probabilities, no extras.
        if type(choice) is not dict or list(choice.values()).count(None) != len(choice) - 2:
            return None
        look = self._only_text
        index, text = choice.get("index"), choice.get("text") if look is None else look(choice)
        if type(text) is not str or not text or type(index) is not int:
            return None
        state = self._choices.get(index)
        if state is None or state.finished or (state.joiner is not None and state.joiner.pending):
            return None
        return Delta(index, text)

    def end(self) -> list[Event]:
        """The last events; ``UpstreamIncomplete`` when the answer is not whole."""
        if not self._choices:
            raise UpstreamIncomplete("the model's server ended its answer before it said anything")
        if not self.finished:
            raise UpstreamIncomplete("the model's server ended its answer without a finish_reason")
        return [self._usage] if self._usage is not None else []

    def _fields(self, chunk: dict[str, Any], odd: bool) -> Mapping[str, Any]:
        fields = {key: value for key, value in chunk.items() if key not in ANSWER_KEYS and value is not None}
        return replace_lone(fields) if odd else fields

    def _take_choice(self, choice: object, position: int, odd: bool, events: list[Event]) -> None:
        if not isinstance(choice, dict):
            raise self.invalid("the model's server sent a choice that is not an object")
        index = choice.get("index", position)
        if type(index) is not int or not 0 <= index < self._asked:
            raise self.invalid(f"the model's server sent a choice beyond the {self._asked} asked for")
        shape = self._shape
        said, more_said = (choice.get("text"), EMPTY_MAPPING) if shape.said is None else shape.said(choice)
        if said is not None and not isinstance(said, str):
            raise self.invalid("the model's server sent text that is not a string")
        ended = choice.get("finish_reason")
        reason = None if ended is None else finish_reason(ended)
        state = self._choices.get(index)
        if state is None:
            state = self._choices[index] = _Choice()
        if state.finished:
            if said or more_said:
                raise self.invalid(f"the model's server sent more text for choice {index} after its finish_reason")
            return
        text = said or ""
        if odd and state.joiner is None:
            state.joiner = SurrogateJoiner()
        if state.joiner is not None:
            text = state.joiner.feed(text) + (state.joiner.flush() if reason else "")
        fields = (replace_lone(more_said) if odd else more_said) or EMPTY_MAPPING
        extras: Mapping[str, Any] = EMPTY_MAPPING
        last: Mapping[str, Any] = EMPTY_MAPPING
        more = _given(choice, shape.keys)
        if more:
            last = {key: more.pop(key) for key in _END_KEYS if key in more} if reason else EMPTY_MAPPING
            extras = (replace_lone(more) if odd else more) or EMPTY_MAPPING
        raw = choice.get("logprobs")
        if raw is not None and not isinstance(raw, dict):
            raise self.invalid("the model's server sent logprobs that are not an object")
        logprobs = shape.logprobs(replace_lone(raw) if odd else raw) if raw else None
        if text or logprobs or fields or extras:
            events.append(Delta(index, text, logprobs or None, fields, extras))
        if reason:
            state.finished = True
            matched = next((value for value in last.values() if isinstance(value, str | int)), None) if last else None
            events.append(Finish(index, reason, matched, "engine", last))


def read_usage(usage: object, invalid: type[UpstreamError] = UpstreamInvalidStream) -> Usage | None:
    """The counts of a ``usage`` object; None when they are missing, negative or no integers (row C30).

    Raises ``invalid`` for a count beyond ``MAX_COUNT``: it would stay in every sum.
    """
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens", 0)
    if type(prompt) is not int or type(completion) is not int or prompt < 0 or completion < 0:
        return None
    if prompt > MAX_COUNT or completion > MAX_COUNT:
        raise invalid("the model's server sent a count of tokens beyond 2^53")
    return Usage(prompt, completion, "upstream", _given(usage, COUNTS) or EMPTY_MAPPING)


def _given(said: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any] | None:
    """What is said beside the known keys, in its order; None for nothing, as engines write null for most of it."""
    for key in said.keys() - known:
        if said[key] is not None:
            return {key: value for key, value in said.items() if key not in known and value is not None}
    return None
