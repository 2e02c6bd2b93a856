"""How does an answer look on the wire? Events and completions out as OpenAI's objects.

Two speakers, one for each endpoint, with the same three methods. A stream's rules
(``docs/spec/wire.md`` 4): the role travels with the first content of each choice,
each choice ends with exactly one ``finish_reason``, usage comes in a last chunk without choices
and only if it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import orjson

from gateway.core.completion import Choice, Completion
from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.events import Begun, Delta, Document, Event, Finish, TokenLogprob, Usage
from gateway.core.text_splice import ChoiceFrame
from gateway.wire.logprobs import to_chat, to_completions

DONE = b"data: [DONE]\n\n"
TEXT_ENDS = b',"logprobs":null,"finish_reason":null}'
"""What stands behind the text in a choice that says nothing else, brackets aside."""


def usage_object(usage: Usage) -> dict[str, Any]:
    """OpenAI's usage; a count of our own says so in ``source``."""
    body: dict[str, Any] = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    }
    if usage.details is not EMPTY_MAPPING:
        body.update(usage.details)
    if usage.source != "upstream":
        body["source"] = usage.source
    return body


def plain_chat(answer: Completion | Document, id_: str, model: str, created: int) -> dict[str, Any] | None:
    """An ordinary answer as ``ChatSpeaker.whole`` would speak it: one choice, nothing but text, its counts upstream's.

    None for all others, which have more to say.
    """
    if type(answer) is not Completion or len(answer.choices) != 1:
        return None
    choice, usage, begun = answer.choices[0], answer.usage, answer.begun
    if (
        choice.logprobs is not None
        or choice.fields is not EMPTY_MAPPING
        or choice.extras is not EMPTY_MAPPING
        or usage is None
        or usage.details is not EMPTY_MAPPING
        or usage.source != "upstream"
        or (begun is not None and begun.fields is not EMPTY_MAPPING)
    ):
        return None
    prompt, completion = usage.prompt, usage.completion
    return {
        "id": id_,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.text},
                "logprobs": None,
                "finish_reason": choice.finish.reason,
            }
        ],
        "usage": {
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        },
    }  # fmt: skip


class ResponseWriter(Protocol):
    """Speaks one answer; a fresh one for each call."""

    def whole(self, completion: Completion) -> dict[str, Any]:
        """The body of a non-streaming answer."""
        ...

    def chunk(self, event: Event) -> bytes:
        """The frame for an event; empty for events that have none."""
        ...

    def frames(self, events: Sequence[Event]) -> bytes:
        """The frames of a batch, as ``chunk`` would give them one by one."""
        ...

    def lanes(self) -> dict[int, ChoiceFrame]:
        """What stands around the text of each choice whose frames differ in nothing else from now on."""
        ...

    def usage(self) -> bytes:
        """The usage chunk; empty if it was not asked for or nothing was counted."""
        ...


class _Speaker:
    """What both endpoints share: the envelope, and the usage kept for the end."""

    whole_object = ""
    chunk_object = ""
    text_opens = b""
    """What stands before the text in a choice that says nothing else, with its number, as ``_delta`` would have it."""
    text_closes = b""
    """What stands behind it."""

    def __init__(
        self,
        id_: str,
        model: str,
        created: int,
        include_usage: bool,
        top_logprobs: int | None = None,
        gateway: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """``top_logprobs``: alternatives shown per token; None: all.

        ``gateway``: asked for when the answer, or its first chunk, goes out: it knows no more than has happened.
        """
        self._head: dict[str, Any] = {"id": id_, "object": self.chunk_object, "created": created, "model": model}
        self._include_usage = include_usage
        self._usage: Usage | None = None
        self._gateway = gateway
        self._around: dict[int, tuple[bytes, bytes]] = {}
        """By choice, once it is introduced: what stands before and behind the text of a frame that has nothing else."""
        self._begin = b""
        """What every frame of a stream begins with, up to its choices; empty: nobody has asked yet."""
        self._end = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        """What it ends with, behind them."""
        self._top = top_logprobs

    def whole(self, completion: Completion) -> dict[str, Any]:
        body: dict[str, Any] = {
            **self._head,
            "object": self.whole_object,
            "choices": [self._choice(choice) for choice in completion.choices],
            "usage": usage_object(completion.usage) if completion.usage else None,
        }
        if completion.begun is not None and completion.begun.fields is not EMPTY_MAPPING:
            body.update(completion.begun.fields)
        if self._gateway is not None:
            body["gateway"] = self._gateway()
        return body

    def chunk(self, event: Event) -> bytes:
        if isinstance(event, Delta):
            # An empty delta says nothing: a frame for it would bring the role before the content.
            said = event.text or event.logprobs or event.fields or event.extras
            return self._chunk(self._delta(event)) if said else b""
        if isinstance(event, Finish):
            return self._chunk(self._finish(event))
        if isinstance(event, Usage):
            self._usage = event
        elif isinstance(event, Begun) and event.fields is not EMPTY_MAPPING:
            self._head.update(event.fields)
            self._begin = b""
            self._around.clear()
        return b""

    def frames(self, events: Sequence[Event]) -> bytes:
        said: list[bytes] = []
        for event in events:
            if (
                type(event) is Delta
                and event.text
                and event.logprobs is None
                and event.fields is EMPTY_MAPPING
                and event.extras is EMPTY_MAPPING
            ):
                around = self._around.get(event.index)
                if around is None and self._gateway is None:
                    around = self._surround(event.index)
                if around is not None:
                    said += (around[0], orjson.dumps(event.text), around[1])
                    continue
                said.append(self.chunk(event))
            else:
                said.append(self.chunk(event))
        return b"".join(said)

    def lanes(self) -> dict[int, ChoiceFrame]:
        return {index: ChoiceFrame(*around) for index, around in self._around.items()}

    def _surround(self, index: int) -> tuple[bytes, bytes]:
        """What stands around the text of this choice's next frame; ``_around`` keeps it for those behind it."""
        begin, behind = self._begin or self._beginning(), self.text_closes + self._end
        around = self._around[index] = begin + self.text_opens % index, behind
        return around

    def _beginning(self) -> bytes:
        self._begin = b"data: " + orjson.dumps(self._head)[:-1] + b',"choices":['
        return self._begin

    def usage(self) -> bytes:
        if not self._include_usage or self._usage is None:
            return b""
        said = orjson.dumps(usage_object(self._usage))
        return b'%b],"usage":%b}\n\n' % (self._begin or self._beginning(), said)

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        if self._gateway is None:
            return (self._begin or self._beginning()) + orjson.dumps(choice) + self._end
        body = {**self._head, "choices": [choice]}
        if self._include_usage:
            body["usage"] = None
        body["gateway"], self._gateway = self._gateway(), None  # once, with the first chunk
        return b"data: " + orjson.dumps(body) + b"\n\n"

    def _choice(self, choice: Choice) -> dict[str, Any]:
        raise NotImplementedError

    def _delta(self, delta: Delta) -> dict[str, Any]:
        raise NotImplementedError

    def _finish(self, finish: Finish) -> dict[str, Any]:
        raise NotImplementedError


WITH_ROLE = b'{"index":%d,"delta":{"role":"assistant","content":'
"""``ChatSpeaker.text_opens`` where the choice is not introduced yet."""


class ChatSpeaker(_Speaker):
    """``/v1/chat/completions``."""

    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    text_opens = b'{"index":%d,"delta":{"content":'
    text_closes = b"}" + TEXT_ENDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._introduced: set[int] = set()

    def _surround(self, index: int) -> tuple[bytes, bytes]:
        before, behind = super()._surround(index)  # without a role, which the first frame alone has
        if index in self._introduced:
            return before, behind
        self._introduced.add(index)
        return self._begin + WITH_ROLE % index, behind

    def _choice(self, choice: Choice) -> dict[str, Any]:
        # Content is null only beside tool calls: clients index into a string.
        content = None if not choice.text and choice.fields.get("tool_calls") else choice.text
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if choice.fields is not EMPTY_MAPPING:
            message.update(choice.fields)
        said: dict[str, Any] = {
            "index": choice.index,
            "message": message,
            "logprobs": self._logprobs(choice.logprobs),
            "finish_reason": choice.finish.reason,
        }
        if choice.extras is not EMPTY_MAPPING:
            said.update(choice.extras)
        return said

    def _delta(self, delta: Delta) -> dict[str, Any]:
        said: dict[str, Any] = self._role(delta.index)
        if delta.fields is EMPTY_MAPPING:
            said["content"] = delta.text
        else:
            if delta.text or not delta.fields:
                said["content"] = delta.text
            said.update(delta.fields)
        body = {
            "index": delta.index,
            "delta": said,
            "logprobs": None if delta.logprobs is None else self._logprobs(delta.logprobs),
            "finish_reason": None,
        }
        return body if delta.extras is EMPTY_MAPPING else {**body, **delta.extras}

    def _finish(self, finish: Finish) -> dict[str, Any]:
        said = self._role(finish.index)
        if said:  # an empty answer still has a content
            said["content"] = ""
        body = {"index": finish.index, "delta": said, "logprobs": None, "finish_reason": finish.reason}
        return body if finish.extras is EMPTY_MAPPING else {**body, **finish.extras}

    def _logprobs(self, tokens: tuple[TokenLogprob, ...] | None) -> dict[str, Any] | None:
        if tokens is None:
            return None
        if self._top is not None:
            tokens = tuple(replace(token, top=(token.top or ())[: self._top]) for token in tokens)
        return to_chat(tokens)

    def _role(self, index: int) -> dict[str, Any]:
        if index in self._introduced:
            return {}
        self._introduced.add(index)
        return {"role": "assistant"}


class CompletionSpeaker(_Speaker):
    """``/v1/completions``."""

    whole_object = "text_completion"
    chunk_object = "text_completion"
    text_opens = b'{"index":%d,"text":'
    text_closes = TEXT_ENDS

    def _choice(self, choice: Choice) -> dict[str, Any]:
        return {
            "index": choice.index,
            "text": choice.text,
            "logprobs": None if choice.logprobs is None else to_completions(choice.logprobs),
            "finish_reason": choice.finish.reason,
            **choice.extras,
        }

    def _delta(self, delta: Delta) -> dict[str, Any]:
        body = {
            "index": delta.index,
            "text": delta.text,
            "logprobs": None if delta.logprobs is None else to_completions(delta.logprobs),
            "finish_reason": None,
        }
        return body if delta.extras is EMPTY_MAPPING else {**body, **delta.extras}

    def _finish(self, finish: Finish) -> dict[str, Any]:
        body = {"index": finish.index, "text": "", "logprobs": None, "finish_reason": finish.reason}
        return body if finish.extras is EMPTY_MAPPING else {**body, **finish.extras}


SPEAKERS: dict[str, type[ChatSpeaker] | type[CompletionSpeaker]] = {
    "chat": ChatSpeaker,
    "completions": CompletionSpeaker,
}
