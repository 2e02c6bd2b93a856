"""Writes answers of ``/v1/responses`` as response objects, or as named stream events with sequence numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import orjson

from gateway.core.errors import GatewayError
from gateway.wire.error_object import error_object
from gateway.wire.request_fields import OPENAI_DEFAULTS
from gateway.wire.responses import DONE, AnswerHead, ResponseWriter
from gateway.wire.responses_api.output import INCOMPLETE, Changes, OutputItems
from gateway.wire.responses_api.tools import namespaced
from metatemplate.values.events import Completion, Delta, Event, Usage


class ResponsesApiWriter(ResponseWriter):
    """Writes answers of ``/v1/responses``."""

    id_prefix: ClassVar[str] = "resp_"
    needs_events: ClassVar[bool] = True

    def __init__(self, answer: AnswerHead, now: Callable[[], float] = time.time) -> None:
        """See ``ResponseWriter``. Usage is written for every client. ``now`` returns Unix seconds."""
        self._head: dict[str, Any] = {
            "id": answer.id,
            "object": "response",
            "created_at": answer.created,
            "model": answer.model,
        }
        self._output = OutputItems(answer.id.removeprefix(self.id_prefix), answer.top_logprobs)
        self._gateway = answer.gateway
        self._now = now
        self._repeated: dict[str, Any] = {}
        self._sequence = 0
        """The number of events written so far."""

    def repeat_request(self, echo: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        """Store the request fields that the response repeats. See ``ResponseWriter.repeat_request``."""
        self._output.namespaced = namespaced(echo["tools"])
        self._repeated = {
            **echo,
            **{name: params.get(name, default) for name, default in OPENAI_DEFAULTS.items()},
            "max_output_tokens": params.get("max_completion_tokens", params.get("max_tokens")),
            "reasoning": {"effort": params.get("reasoning_effort"), "summary": None},
            "service_tier": params.get("service_tier", "default"),
        }

    def whole(self, completion: Completion) -> dict[str, Any]:
        """Return the response object of an answer that is not streamed. See ``ResponseWriter.whole``."""
        for event in completion.events or _events_of(completion):
            self._output.add(event)
        return self._ended()

    def frames(self, events: Sequence[Event]) -> bytes:
        """Return the stream events for a batch. The events that begin the response come before the first content."""
        frames = b""
        for event in events:
            changes = self._output.add(event)
            if changes and not self._sequence:
                response = self._response("in_progress", output=[])
                changes = [
                    {"type": f"response.{name}", "response": response} for name in ("created", "in_progress")
                ] + changes
            frames += self._frames(changes)
        return frames

    def end(self) -> bytes:
        """Return the event with the completed or incomplete response, then ``[DONE]``."""
        response = self._ended()
        return self._frames([{"type": f"response.{response['status']}", "response": response}]) + DONE

    def failure(self, error: GatewayError) -> bytes:
        """Return the event with the failed response and its error, then ``[DONE]``."""
        self._output.abandon()
        response = self._response("failed")
        response["error"] = error_object(error)["error"]
        return self._frames([{"type": "response.failed", "response": response}]) + DONE

    def _frames(self, changes: Changes) -> bytes:
        frames = []
        for change in changes:
            change["sequence_number"] = self._sequence
            self._sequence += 1
            frames.append(b"event: %b\ndata: %b\n\n" % (change["type"].encode("ascii"), orjson.dumps(change)))
        return b"".join(frames)

    def _ended(self) -> dict[str, Any]:
        """Return the response object of an answer that has ended without an error."""
        assert self._output.finish is not None
        reason = INCOMPLETE.get(self._output.finish.reason)
        if reason is None:
            return self._response("completed") | {"completed_at": int(self._now())}
        return self._response("incomplete") | {"incomplete_details": {"reason": reason}}

    def _response(self, status: str, output: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        items, usage = self._output.items() if output is None else output, self._output.usage
        body: dict[str, Any] = {
            **self._head,
            "status": status,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "output": items,
            "usage": None if usage is None else response_usage(usage),
            **self._repeated,
        }
        for name, value in self._output.fields.items():
            if name not in body or name == "service_tier":
                body[name] = value
        if self._gateway is not None:
            body["gateway"] = self._gateway()
        return body


def response_usage(usage: Usage) -> dict[str, Any]:
    """Return the token counts with the key names of this API. Required details that are not known are 0."""
    details = dict(usage.details)
    prompt, completion = [
        value if isinstance(value := details.pop(name, None), Mapping) else {}
        for name in ("prompt_tokens_details", "completion_tokens_details")
    ]
    body: dict[str, Any] = {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, **prompt},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0, **completion},
        "total_tokens": usage.prompt + usage.completion,
        **details,
    }
    if usage.source != "upstream":
        body["source"] = usage.source
    return body


def _events_of(completion: Completion) -> list[Event]:
    """Return the events of an answer whose events were not kept. Such an answer has at most one piece of text."""
    events: list[Event | None] = [completion.begun]
    for choice in completion.choices:
        events += [Delta(choice.index, choice.text, choice.logprobs), choice.finish]
    return [event for event in (*events, completion.usage) if event is not None]
