"""Writes answers as OpenAI's objects: whole bodies or stream events.

Each endpoint has one writer. The rules of streams (``docs/spec/wire.md`` 4): the role comes with the first content of
each choice, and each choice ends with exactly one ``finish_reason``. If the client requests usage, a last chunk without
choices contains the usage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import orjson

from gateway.core.errors import GatewayError
from gateway.core.text_splice import ChoiceFrame
from gateway.wire.error_object import error_object
from gateway.wire.logprobs import to_chat, to_completions
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.events import Begun, Choice, Completion, Delta, Event, Finish, TokenLogprob, Usage
from metatemplate.values.frozen import dataclass

PROMPT_FIELDS = ("prompt_logprobs", "prompt_token_ids")
"""vLLM's fields about a prompt. They are top-level keys of a chat answer, and of the first chunk of a chat stream."""
DONE = b"data: [DONE]\n\n"
SAMPLE_TEXT = "\N{WHITE SQUARE}"
"""The text of a frame that is made to find the bytes around the text in the other frames of a choice."""
SAMPLE_STRING = orjson.dumps(SAMPLE_TEXT)


def usage_object(usage: Usage) -> dict[str, Any]:
    """Return OpenAI's usage object. The key ``source`` is added if the gateway counted the tokens."""
    body: dict[str, Any] = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    }
    if usage.details:
        body.update(usage.details)
    if usage.source != "upstream":
        body["source"] = usage.source
    return body


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The facts about an answer that are known before its first event."""

    id: str
    model: str
    created: int
    """Unix time in seconds."""
    include_usage: bool
    """True: a stream ends with the token counts."""
    top_logprobs: int | None = None
    """Maximum alternatives for each token; None: all alternatives from the engine are written."""
    gateway: Callable[[], Mapping[str, Any]] | None = None
    """Returns the explanation; None: the answer has no explanation."""


class ResponseWriter(ABC):
    """Writes one answer in the format of its endpoint; each call has a new writer."""

    id_prefix: ClassVar[str] = ""
    """The id of an answer is ``{id_prefix}{request id}``."""
    needs_events: ClassVar[bool] = False
    """True: ``whole`` needs ``Completion.events``, because the format orders its parts by their arrival."""

    @abstractmethod
    def __init__(self, answer: AnswerHead) -> None:
        """``answer``: the facts that are known before the first event."""

    @abstractmethod
    def whole(self, completion: Completion) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""

    @abstractmethod
    def frames(self, events: Sequence[Event]) -> bytes:
        """Return the stream events for a batch; empty if there is nothing to send."""

    @abstractmethod
    def end(self) -> bytes:
        """Return the last stream events of an answer that has ended without an error."""

    def repeat_request(self, echo: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        """Store the request fields that the answer repeats. Call before writing. ``params``: effective parameters."""
        raise NotImplementedError

    def choice_frames(self) -> dict[int, ChoiceFrame]:
        """Return choice → the bytes around the text of its next frames; empty if text cannot be forwarded directly."""
        return {}

    def failure(self, error: GatewayError) -> bytes:
        """Return the last stream events of an answer that has failed: the error, then ``[DONE]``."""
        return b"data: " + orjson.dumps(error_object(error)) + b"\n\n" + DONE


class ChoicesWriter(ResponseWriter):
    """Base class for the formats in which an answer is a list of choices."""

    whole_object: ClassVar[str] = ""
    chunk_object: ClassVar[str] = ""

    def __init__(self, answer: AnswerHead) -> None:
        """See ``ResponseWriter``. The explanation is made only once, when the answer or its first chunk is written."""
        self._head: dict[str, Any] = {
            "id": answer.id,
            "object": self.chunk_object,
            "created": answer.created,
            "model": answer.model,
        }
        self._answer = answer
        self._usage: Usage | None = None
        self._gateway = answer.gateway
        self._around_text: dict[int, tuple[bytes, bytes]] = {}
        """Choice whose text has begun → the bytes before and after the text in a frame with only text."""
        self._frame_start = b""
        """The start of every frame, up to its choices; empty until the first frame is written."""
        self._sent: dict[int, set[str]] = {}
        """Choice of a chat → the message keys that were sent. A choice has no entry before its role was sent."""
        self._prompt_fields: Mapping[str, Any] = EMPTY_MAPPING
        """The ``PROMPT_FIELDS`` that the next chunk will contain as top-level keys."""
        self._prompt_sent = False
        """True: ``_prompt_fields`` have been taken from a choice."""

    def whole(self, completion: Completion) -> dict[str, Any]:
        """Return the body of an answer that is not streamed. See ``ResponseWriter.whole``."""
        body: dict[str, Any] = {
            **self._head,
            "object": self.whole_object,
            "choices": [self._choice(choice) for choice in completion.choices],
            "usage": usage_object(completion.usage) if completion.usage else None,
        }
        if completion.begun is not None and completion.begun.fields:
            body.update(completion.begun.fields)
        if self._prompt_fields:
            body.update(self._prompt_fields)
        if self._gateway is not None:
            body["gateway"] = self._gateway()
        return body

    def frames(self, events: Sequence[Event]) -> bytes:
        """Return the stream events for a batch. See ``ResponseWriter.frames``."""
        parts: list[bytes] = []
        for event in events:
            if (
                type(event) is not Delta
                or not event.text
                or event.logprobs is not None
                or event.fields is not EMPTY_MAPPING
                or event.extras is not EMPTY_MAPPING
            ):
                parts.append(self._frame(event))
            elif (around := self._around_text.get(event.index)) is not None:
                parts += (around[0], orjson.dumps(event.text), around[1])
            else:
                parts.append(self._frame(event))
                before, after = _around_text(type(self), event.index, self._answer.include_usage)
                self._around_text[event.index] = (self._frame_start or self._make_frame_start()) + before, after
        return b"".join(parts)

    def choice_frames(self) -> dict[int, ChoiceFrame]:
        """Return the bytes around the text of each choice that has text. See ``ResponseWriter.choice_frames``."""
        return {index: ChoiceFrame(before, after) for index, (before, after) in self._around_text.items()}

    def usage(self) -> bytes:
        """Return the usage chunk; empty if the client did not request usage, or if the token counts are not known."""
        if not self._answer.include_usage or self._usage is None:
            return b""
        usage = orjson.dumps(usage_object(self._usage))
        return b'%b],"usage":%b}\n\n' % (self._frame_start or self._make_frame_start(), usage)

    def end(self) -> bytes:
        """Return the usage chunk, then ``[DONE]``. See ``ResponseWriter.end``."""
        return self.usage() + DONE

    def _frame(self, event: Event) -> bytes:
        """Return the frame of one event; empty if the event needs no frame."""
        if isinstance(event, Delta):
            # An empty delta gets no frame, because the frame would send the role before the content.
            has_content = event.text or event.logprobs or event.fields or event.extras
            return self._chunk(self._delta(event)) if has_content else b""
        if isinstance(event, Finish):
            return self._chunk(self._finish(event))
        if isinstance(event, Usage):
            self._usage = event
        elif isinstance(event, Begun) and event.fields is not EMPTY_MAPPING:
            fields = dict(event.fields)
            self._prompt_fields = {name: fields.pop(name) for name in PROMPT_FIELDS if name in fields}
            self._head.update(fields)
            self._frame_start = b""
            self._around_text.clear()
        return b""

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        if self._gateway is None and not self._prompt_fields:
            end = b'],"usage":null}\n\n' if self._answer.include_usage else b"]}\n\n"
            return (self._frame_start or self._make_frame_start()) + orjson.dumps(choice) + end
        body = {**self._head, "choices": [choice], **self._prompt_fields}
        self._prompt_fields = EMPTY_MAPPING
        if self._answer.include_usage:
            body["usage"] = None
        if self._gateway is not None:
            body["gateway"], self._gateway = self._gateway(), None
        return b"data: " + orjson.dumps(body) + b"\n\n"

    def _make_frame_start(self) -> bytes:
        self._frame_start = b"data: " + orjson.dumps(self._head)[:-1] + b',"choices":['
        return self._frame_start

    def _choice(self, choice: Choice) -> dict[str, Any]:
        raise NotImplementedError

    def _delta(self, delta: Delta) -> dict[str, Any]:
        raise NotImplementedError

    def _finish(self, finish: Finish) -> dict[str, Any]:
        raise NotImplementedError


@lru_cache(1024)
def _around_text(writer_class: type[ChoicesWriter], index: int, include_usage: bool) -> tuple[bytes, bytes]:
    """Return the bytes around the text in a frame with only text, after the start that all frames share."""
    writer = writer_class(AnswerHead("", "", 0, include_usage))
    start = writer._make_frame_start()
    _, frame = [writer._frame(Delta(index, SAMPLE_TEXT)) for _ in range(2)]  # the first frame of a chat has the role
    before, _, after = frame.removeprefix(start).rpartition(SAMPLE_STRING)
    return before, after


class ChatWriter(ChoicesWriter):
    """Writes answers of ``/v1/chat/completions``."""

    id_prefix: ClassVar[str] = "chatcmpl-"
    whole_object: ClassVar[str] = "chat.completion"
    chunk_object: ClassVar[str] = "chat.completion.chunk"

    def _choice(self, choice: Choice) -> dict[str, Any]:
        # Content is null only in answers with tool calls, because clients use the content as a string.
        content = None if not choice.text and choice.fields.get("tool_calls") else choice.text
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if choice.fields:
            message.update(choice.fields)
        logprobs, reason = self._logprobs(choice.logprobs), choice.finish.reason
        body = {"index": choice.index, "message": message, "logprobs": logprobs, "finish_reason": reason}
        if choice.extras:
            body.update(self._without_prompt_fields(choice.extras))
        return body

    def _delta(self, delta: Delta) -> dict[str, Any]:
        message, sent = self._role(delta.index), self._sent[delta.index]
        if delta.text or (not delta.fields and "content" in sent):
            message["content"] = delta.text
        if delta.fields:
            message.update(delta.fields)
        sent.update(message)
        logprobs = self._logprobs(delta.logprobs)
        body = {"index": delta.index, "delta": message, "logprobs": logprobs, "finish_reason": None}
        if delta.extras:
            body.update(self._without_prompt_fields(delta.extras))
        return body

    def _finish(self, finish: Finish) -> dict[str, Any]:
        body, sent = self._role(finish.index), self._sent[finish.index]
        if sent.isdisjoint(("content", "tool_calls")):  # as in ``_choice``: an answer without text has a content
            body["content"] = ""
        choice = {"index": finish.index, "delta": body, "logprobs": None, "finish_reason": finish.reason}
        return {**choice, **finish.extras}

    def _logprobs(self, tokens: tuple[TokenLogprob, ...] | None) -> dict[str, Any] | None:
        return None if tokens is None else to_chat(tokens, self._answer.top_logprobs)

    def _without_prompt_fields(self, extras: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the extras of a choice without ``PROMPT_FIELDS``, which are written once, as top-level keys."""
        if extras.keys().isdisjoint(PROMPT_FIELDS):
            return extras
        if not self._prompt_sent:
            self._prompt_sent = True
            self._prompt_fields = {name: extras[name] for name in PROMPT_FIELDS if name in extras}
        return {name: value for name, value in extras.items() if name not in PROMPT_FIELDS}

    def _role(self, index: int) -> dict[str, Any]:
        """Return the role for the first frame of a choice; empty for later frames."""
        if index in self._sent:
            return {}
        self._sent[index] = set()
        return {"role": "assistant"}


class CompletionWriter(ChoicesWriter):
    """Writes answers of ``/v1/completions``."""

    id_prefix: ClassVar[str] = "cmpl-"
    whole_object: ClassVar[str] = "text_completion"
    chunk_object: ClassVar[str] = "text_completion"

    def _choice(self, choice: Choice) -> dict[str, Any]:
        return self._entry(choice, choice.finish.reason)

    def _delta(self, delta: Delta) -> dict[str, Any]:
        return self._entry(delta, None)

    def _finish(self, finish: Finish) -> dict[str, Any]:
        return self._entry(Delta(finish.index, extras=finish.extras), finish.reason)

    def _entry(self, part: Choice | Delta, finish_reason: str | None) -> dict[str, Any]:
        return {
            "index": part.index,
            "text": part.text,
            "logprobs": None if part.logprobs is None else to_completions(part.logprobs),
            "finish_reason": finish_reason,
            **part.extras,
        }
