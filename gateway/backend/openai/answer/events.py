"""Chunks of a response → events, for both endpoints. A response without a stream is one chunk.

A chunk that cannot be read is an error, because skipping it could lose text. A choice with an index that was not
requested is skipped with a notice, because no choice of the client can lose text by that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gateway.backend.openai.error_mapping import error_in_body
from gateway.core.errors import SEND_AGAIN, UpstreamError, UpstreamIncomplete, UpstreamInvalidStream
from gateway.stream.finish_reason import finish_reason
from gateway.stream.surrogates import SurrogateJoiner, replace_lone
from gateway.wire.logprobs import from_chat, from_completions
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import SKIPPED_CHOICE, Begun, Delta, Event, Finish, TokenLogprob, Usage
from metatemplate.values.frozen import dataclass

RESPONSE_KEYS = frozenset({"id", "object", "created", "model", "choices", "usage"})
"""The keys of a response that are read here or written by the gateway itself. All other keys are passed on."""
STOP_KEYS = ("stop_reason", "matched_stop")
"""The keys of a choice that contain the matched stop, in vLLM and in SGLang."""
PLAIN_DELTA_KEYS = frozenset({"role", "content"})
COUNT_KEYS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
"""The keys of ``usage`` that are read. All other keys are passed on as details."""
MAX_COUNT = 2**53
"""The largest valid count of tokens. Larger integers are not exact in every programming language."""


# ---------------------------------------------------------------- the two formats of a choice


@dataclass(frozen=True, slots=True)
class ChoiceFormat:
    """The format of a choice at one endpoint."""

    message: Callable[[Mapping[str, Any]], tuple[object, Mapping[str, Any]]] | None
    """Choice → (text, other fields of the delta or message). None: the text is in the key ``text``, without fields."""
    logprobs: Callable[[Any], tuple[TokenLogprob, ...] | None]
    keys: frozenset[str]
    """The keys of a choice that are read. All other keys are passed on as extras."""


def _chat_message(choice: Mapping[str, Any]) -> tuple[object, Mapping[str, Any]]:
    message = choice.get("delta")
    if message is None:
        message = choice.get("message") or {}
        if isinstance(message, dict) and isinstance(message.get("tool_calls"), list):
            # Tool calls have a position in a message and an index in a delta; events have the form of deltas.
            calls = [{"index": at, **call} for at, call in enumerate(message["tool_calls"]) if isinstance(call, dict)]
            message = {**message, "tool_calls": calls}
    if not isinstance(message, dict):
        return message, EMPTY_MAPPING
    fields: Mapping[str, Any] = EMPTY_MAPPING
    if not message.keys() <= PLAIN_DELTA_KEYS:
        fields = {
            key: value for key, value in message.items() if key not in PLAIN_DELTA_KEYS and value not in (None, "", [])
        }
    return message.get("content"), fields


COMPLETIONS_FORMAT = ChoiceFormat(
    message=None,
    logprobs=from_completions,
    keys=frozenset({"index", "text", "logprobs", "finish_reason"}),
)
CHAT_FORMAT = ChoiceFormat(
    message=_chat_message,
    logprobs=from_chat,
    keys=frozenset({"index", "delta", "message", "logprobs", "finish_reason"}),
)


# ---------------------------------------------------------------- chunks → events


class ChunkReader:
    """Reads the chunks of one response, and tracks which choices have begun and finished."""

    __slots__ = (
        "_begun",
        "_choices",
        "_finished",
        "_notices",
        "_open",
        "_private",
        "_skipped",
        "_target",
        "_usage",
        "format",
        "invalid",
    )

    def __init__(
        self,
        format: ChoiceFormat,
        target: str,
        choices: int,
        notices: tuple[str, ...] = (),
        private: tuple[str, ...] = (),
    ) -> None:
        """``choices``: the requested number of choices. ``private``: see ``error_mapping.one_safe_line``."""
        self.format = format
        self._target = target
        self._choices = choices
        self._notices = notices
        self._private = private
        self.invalid: type[UpstreamError] = UpstreamInvalidStream
        """The error for a chunk that cannot be read."""
        self._begun = False
        """True: the first chunk has been read."""
        self._open: dict[int, SurrogateJoiner | None] = {}
        """Index of each unfinished choice → a joiner if half a character may have arrived, otherwise None."""
        self._finished: set[int] = set()
        self._skipped = False
        """True: a choice with an index that was not requested has been skipped."""
        self._usage: Usage | None = None

    @property
    def finished(self) -> bool:
        """True: every choice that began has finished, and at least one choice began."""
        return bool(self._finished) and not self._open

    @property
    def has_choices(self) -> bool:
        """True: at least one choice has begun."""
        return bool(self._open or self._finished)

    def read(self, chunk: object, *, surrogates: bool = False) -> list[Event]:
        """Return the events of one chunk.

        ``surrogates``: the chunk may have lone surrogates. Raises the error that the chunk reports, or ``invalid``.
        """
        if not isinstance(chunk, dict):
            raise self.invalid("the model's server sent JSON that is not an object")
        choices = chunk.get("choices")
        if choices is None or chunk.get("error") is not None or chunk.get("object") == "error":
            if (error := error_in_body(chunk, self._private)) is not None:
                raise error
            if choices is None and ("choices" in chunk or isinstance(chunk.get("usage"), dict)):
                choices = []
        if not isinstance(choices, list):
            raise self.invalid("the model's server sent an answer without choices")
        events: list[Event] = []
        if not self._begun:
            self._begun = True
            fields = _other_keys(chunk, RESPONSE_KEYS)
            events.append(Begun(self._target, replace_lone(fields) if surrogates else fields, self._notices))
        usage = chunk.get("usage")
        if usage is not None:
            self._usage = read_usage(usage, self.invalid) or self._usage
        for position, choice in enumerate(choices):
            self._read_choice(choice, position, surrogates, events)
        return events

    def end(self) -> list[Event]:
        """Return the events at the end of the response. Raises ``UpstreamIncomplete`` if a choice has not finished."""
        if not self._finished and not self._open:
            raise UpstreamIncomplete(f"the model's server ended its answer without any content; {SEND_AGAIN}")
        if self._open:
            raise UpstreamIncomplete(f"the model's server ended its answer without a finish_reason; {SEND_AGAIN}")
        return [self._usage] if self._usage is not None else []

    def _read_choice(self, choice: object, position: int, surrogates: bool, events: list[Event]) -> None:
        if not isinstance(choice, dict):
            raise self.invalid("the model's server sent a choice that is not an object")
        index = choice.get("index", position)
        if type(index) is not int:
            raise self.invalid("the model's server sent a choice with an index that is not an integer")
        if not 0 <= index < self._choices:
            if not self._skipped:
                self._skipped = True
                events.append(Begun("", notices=(f"{SKIPPED_CHOICE}: {index}",)))
            return
        form = self.format
        content, fields = (choice.get("text"), EMPTY_MAPPING) if form.message is None else form.message(choice)
        if content is not None and not isinstance(content, str):
            raise self.invalid("the model's server sent text that is not a string")
        ended = choice.get("finish_reason")
        reason = None if ended is None else finish_reason(ended)
        if index in self._finished:
            if content or fields:
                raise self.invalid(f"the model's server sent more text for choice {index} after its finish_reason")
            return
        text, joiner = content or "", self._open.get(index)
        if surrogates and joiner is None:
            joiner = SurrogateJoiner()
        if joiner is not None:
            text = joiner.feed(text) + (joiner.flush() if reason else "")
        extras, finish_extras = _other_keys(choice, form.keys), EMPTY_MAPPING
        logprobs = choice.get("logprobs")
        if logprobs is not None and not isinstance(logprobs, dict):
            raise self.invalid("the model's server sent logprobs that are not an object")
        if surrogates:
            fields, extras, logprobs = replace_lone(fields), replace_lone(extras), replace_lone(logprobs)
        if reason and extras:
            finish_extras = {key: extras[key] for key in STOP_KEYS if key in extras}
            extras = {key: value for key, value in extras.items() if key not in STOP_KEYS}
        entries = form.logprobs(logprobs) if logprobs else None
        if entries or fields or extras:
            events.append(Delta(index, text, entries or None, fields or EMPTY_MAPPING, extras or EMPTY_MAPPING))
        elif text:
            events.append(Delta(index, text))
        if not reason:
            self._open[index] = joiner
            return
        self._open.pop(index, None)
        self._finished.add(index)
        matched = None
        if finish_extras:
            matched = next((value for value in finish_extras.values() if isinstance(value, str | int)), None)
        events.append(Finish(index, reason, matched, "engine", finish_extras))


def read_usage(usage: object, invalid: type[UpstreamError] = UpstreamInvalidStream) -> Usage | None:
    """Return the counts of a ``usage`` object; None if the counts are missing, negative or not integers.

    Raises ``invalid`` for a count above ``MAX_COUNT``, because such a count would distort every sum.
    """
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens", 0)
    if type(prompt) is not int or type(completion) is not int or prompt < 0 or completion < 0:
        return None
    if prompt > MAX_COUNT or completion > MAX_COUNT:
        raise invalid("the model's server sent a count of tokens beyond 2^53")
    return Usage(prompt, completion, "upstream", _other_keys(usage, COUNT_KEYS))


def _other_keys(value: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    """Return the entries with unknown keys, in order. Entries with null are left out, because null means absent."""
    if value.keys() <= known:
        return EMPTY_MAPPING
    for key, item in value.items():
        if item is not None and key not in known:
            return {key: item for key, item in value.items() if item is not None and key not in known}
    return EMPTY_MAPPING
