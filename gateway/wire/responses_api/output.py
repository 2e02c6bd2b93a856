"""The output items of one answer, made from its events, and the stream events that report each change.

An answer has one message with all text, one item for each call, and one item for each section of reasoning. The items
are ordered by the arrival of their first content. The same code makes streams and whole answers, so both have the same
items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.core.errors import UpstreamInvalidResponse, UpstreamTooLarge
from gateway.wire.logprobs import to_chat
from metatemplate.values.events import MAX_COMPLETION, Begun, Delta, Event, Finish, TokenLogprob, Usage, delta_size

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reason of an answer that was cut → the reason in ``incomplete_details``."""

TEXT_EVENTS = {
    # Type of a content part → (the start of its events' names, its key for the text).
    "output_text": ("response.output_text", "text"),
    "refusal": ("response.refusal", "refusal"),
    "reasoning_text": ("response.reasoning_text", "text"),
}

Changes = list[dict[str, Any]]
"""Stream events without their sequence numbers."""


@dataclass(slots=True)
class OpenPart:
    """A content part that is not complete. Text is added until the part is closed."""

    place: Mapping[str, Any]
    """The keys that identify the part in stream events."""
    value: dict[str, Any]
    pieces: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    def close(self) -> Changes:
        """Write the text into the part, and return the stream events that end the part."""
        start, key = TEXT_EVENTS[self.value["type"]]
        self.value[key] = "".join(self.pieces)
        done: dict[str, Any] = {"type": f"{start}.done", **self.place, key: self.value[key]}
        if "logprobs" in self.value:
            done["logprobs"] = self.value["logprobs"] = self.logprobs
        return [done, {"type": "response.content_part.done", **self.place, "part": self.value}]


@dataclass(slots=True)
class OpenItem:
    """An output item that is not complete. Content is added until the item is closed."""

    index: int
    value: dict[str, Any]
    parts: dict[str, OpenPart] = field(default_factory=dict)
    """The parts of a message or of reasoning, by type."""
    arguments: list[str] = field(default_factory=list)
    """The pieces of a call's arguments."""

    @property
    def place(self) -> dict[str, Any]:
        """The keys that identify the item in stream events."""
        return {"item_id": self.value["id"], "output_index": self.index}

    def close(self, status: str) -> Changes:
        """Write the content into the item, and return the stream events that end the item."""
        changes = [change for part in self.parts.values() for change in part.close()]
        value = self.value
        value["status"] = status
        if value["type"] == "function_call":
            value["arguments"] = "".join(self.arguments)
            done = {"name": value["name"], "arguments": value["arguments"]}
            changes.append({"type": "response.function_call_arguments.done", **self.place, **done})
        changes.append({"type": "response.output_item.done", "output_index": self.index, "item": value})
        return changes


class OutputItems:
    """Builds the output items of one answer from the events of this answer."""

    def __init__(self, key: str, top_logprobs: int | None) -> None:
        """``key``: the response id without its prefix. The ids of all items contain this key."""
        self.finish: Finish | None = None
        self.usage: Usage | None = None
        self.fields: dict[str, Any] = {}
        """Keys of the answer that no item can contain, such as ``system_fingerprint``."""
        self.namespaced: Mapping[str, tuple[str, str]] = {}
        """Name of a function in chat requests → its namespace and its name, for the functions of namespaces."""
        self._key = key
        self._top_logprobs = top_logprobs
        self._items: list[OpenItem] = []
        """All items of the answer, open or closed."""
        self._message: OpenItem | None = None
        self._reasoning: OpenItem | None = None
        """The open item with reasoning; None if no reasoning is being written."""
        self._calls: dict[int, OpenItem] = {}
        self._call_ids: dict[str, int] = {}
        self._last: OpenItem | None = None
        """The item that received the last content. A cut answer ends inside this item."""
        self._early_logprobs: list[dict[str, Any]] = []
        """Log probabilities of tokens before the message's first text."""
        self._size = 0
        self._changes: Changes = []
        """The stream events for the event that ``add`` is processing."""

    def add(self, event: Event) -> Changes:
        """Add an event, and return the resulting stream events. Raises ``UpstreamTooLarge`` for a huge answer."""
        self._changes = []
        if isinstance(event, Delta):
            self._add_delta(event)
        elif isinstance(event, Finish):
            if self.finish is None:
                self._end(event)
        elif isinstance(event, Usage):
            self.usage = event
        elif isinstance(event, Begun):
            self._keep(event.fields)
        return self._changes

    def items(self) -> list[dict[str, Any]]:
        """Return the items so far."""
        return [item.value for item in self._items]

    def abandon(self) -> None:
        """Close the open items of an answer that has failed. No stream events are sent."""
        for item in self._items:
            if item.value["status"] == "in_progress":
                item.close("incomplete")

    def _add_delta(self, delta: Delta) -> None:
        if self._size > MAX_COMPLETION:
            return
        self._size += delta_size(delta)
        if self._size > MAX_COMPLETION:
            raise UpstreamTooLarge(f"the model's server streamed an answer of more than {MAX_COMPLETION} bytes")
        further = dict(delta.fields)
        # Both keys have the same text; servers and clients differ in the key that they use.
        thoughts = [further.pop(name, None) for name in ("reasoning_content", "reasoning")]
        if thought := next((text for text in thoughts if isinstance(text, str) and text), ""):
            if self._reasoning is None:
                self._reasoning = self._open("rs", {"type": "reasoning", "summary": [], "content": []})
            self._add_text(self._reasoning, {"type": "reasoning_text", "text": ""}, thought)
        if delta.text or delta.logprobs:
            self._write(delta.text, delta.logprobs or ())
        if isinstance(further.get("refusal"), str) and (refusal := further.pop("refusal")):
            self._add_text(self._open_message(), {"type": "refusal", "refusal": ""}, refusal)
        if isinstance(further.get("tool_calls"), list):
            for fragment in further.pop("tool_calls"):
                self._call(fragment)
        self._keep(further)
        self._keep(delta.extras)

    # ---------------------------------------------------------------- content

    def _write(self, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        tokens = to_chat(logprobs, self._top_logprobs)["content"]
        if not text and (self._message is None or "output_text" not in self._message.parts):
            self._early_logprobs += tokens
            return
        tokens, self._early_logprobs = self._early_logprobs + tokens, []
        self._add_text(self._open_message(), _empty_text(), text, tokens)

    def _call(self, fragment: object) -> None:
        if not isinstance(fragment, Mapping) or not isinstance(function := fragment.get("function") or {}, Mapping):
            raise UpstreamInvalidResponse("the model's server sent a tool call that is not a function call")
        name, arguments = function.get("name") or "", function.get("arguments") or ""
        if not isinstance(name, str) or not isinstance(arguments, str):
            raise UpstreamInvalidResponse(
                "the model's server sent a tool call whose name or arguments are not a string"
            )
        self._end_reasoning("completed")
        index = self._call_index(fragment)
        call = self._calls.get(index)
        if call is None:
            id_ = fragment.get("id") or f"call_{self._key}_{index}"
            value = {"type": "function_call", "call_id": id_, **self._names(name), "arguments": ""}
            call = self._calls[index] = self._open("fc", value)
        elif name:
            call.value.update(self._names(name))
        self._last = call
        if arguments:
            call.arguments.append(arguments)
            self._changes.append({"type": "response.function_call_arguments.delta", **call.place, "delta": arguments})

    def _names(self, name: str) -> dict[str, str]:
        """Return the keys that name a function in its call."""
        if name not in self.namespaced:
            return {"name": name}
        namespace, own = self.namespaced[name]
        return {"name": own, "namespace": namespace}

    def _call_index(self, fragment: Mapping[str, Any]) -> int:
        """Return the index of a fragment's call.

        If the fragment has no index, a new id begins a new call. Without index and id, the last call is continued.
        """
        index, id_ = fragment.get("index"), fragment.get("id")
        if type(index) is not int:
            fresh = max(self._calls, default=-1) + 1
            last = next(reversed(self._calls), fresh)
            index = self._call_ids.get(id_, fresh) if isinstance(id_, str) and id_ else last
        if isinstance(id_, str) and id_:
            self._call_ids.setdefault(id_, index)
        return index

    # ---------------------------------------------------------------- items and parts

    def _open(self, prefix: str, value: dict[str, Any]) -> OpenItem:
        index = len(self._items)
        item = OpenItem(index, {"id": f"{prefix}_{self._key}_{index}", "status": "in_progress", **value})
        self._items.append(item)
        added = {key: [] if isinstance(part, list) else part for key, part in item.value.items()}
        self._changes.append({"type": "response.output_item.added", "output_index": index, "item": added})
        return item

    def _open_message(self) -> OpenItem:
        self._end_reasoning("completed")
        if self._message is None:
            self._message = self._open("msg", {"type": "message", "role": "assistant", "content": []})
        return self._message

    def _add_text(
        self, item: OpenItem, empty: dict[str, Any], text: str, logprobs: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Add text to the item's part with the type of ``empty``. If the item has no such part, ``empty`` is added."""
        self._last = item
        part = item.parts.get(empty["type"])
        if part is None:
            part = OpenPart({**item.place, "content_index": len(item.parts)}, empty)
            item.parts[empty["type"]] = part
            item.value["content"].append(empty)
            self._changes.append({"type": "response.content_part.added", **part.place, "part": dict(empty)})
        if text or logprobs:
            part.pieces.append(text)
            delta = {"type": f"{TEXT_EVENTS[empty['type']][0]}.delta", **part.place, "delta": text}
            if "logprobs" in empty:
                part.logprobs += logprobs
                delta["logprobs"] = logprobs
            self._changes.append(delta)

    def _end_reasoning(self, status: str) -> None:
        reasoning, self._reasoning = self._reasoning, None
        if reasoning is not None:
            self._changes += reasoning.close(status)

    def _end(self, finish: Finish) -> None:
        """Close all items. An answer without text and calls gets a message with an empty text."""
        self.finish = finish
        self._keep(finish.extras)
        cut = "incomplete" if finish.reason in INCOMPLETE else "completed"
        self._end_reasoning(cut)
        if self._message is None and not self._calls:
            self._add_text(self._open_message(), _empty_text(), "")
        if self._early_logprobs:
            self._keep({"logprobs": self._early_logprobs})
        for item in self._items:
            if item.value["status"] == "in_progress":
                self._changes += item.close(cut if item is self._last else "completed")

    def _keep(self, fields: Mapping[str, Any]) -> None:
        """Store other keys of the answer. Texts and lists are joined. For other values, the last value is used."""
        for name, value in fields.items():
            if isinstance(value, str | list) and type(self.fields.get(name)) is type(value):
                self.fields[name] = self.fields[name] + value  # no ``+=``, because the event keeps its list
            elif value is not None:
                self.fields[name] = value


def _empty_text() -> dict[str, Any]:
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
