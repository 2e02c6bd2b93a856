"""Turns the items of ``input`` into chat messages.

A message item becomes one message. The reasoning, the message and the calls of one turn of the model become one
assistant message, as chat templates and chat servers expect. A call's output becomes a message with the role ``tool``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from gateway.core.errors import InvalidValue, UnsupportedParameter
from gateway.wire.request_fields import Closed
from gateway.wire.responses_api.fields import (
    CONTENT_PARTS,
    ITEMS,
    MAX_KEYS,
    AudioContent,
    FileContent,
    FunctionCallItem,
    FunctionOutputItem,
    ImageContent,
    MessageItem,
    ReasoningItem,
    ReasoningText,
    RefusalContent,
    TextContent,
)
from gateway.wire.validation import first_problem
from metatemplate.values.words import quoted

Checked = TypeVar("Checked", bound=Closed)


def read_input(value: str | Sequence[Mapping[str, Any]], instructions: str | None) -> list[dict[str, Any]]:
    """Return the chat messages. ``instructions``: the system message at the start. Raises ``RequestError``."""
    messages = ItemReader(instructions)
    for number, item in enumerate([{"role": "user", "content": value}] if isinstance(value, str) else value):
        messages.add(item, f"input[{number}]")
    return messages.finish()


def checked(model: type[Checked], value: Mapping[str, Any], where: str) -> Checked:
    """Validate ``value`` as a ``model``. A null key is treated as absent. Raises ``InvalidValue`` with the place."""
    if len(value) > MAX_KEYS:
        raise InvalidValue.at(where, f" has {len(value)} keys; it may have at most {MAX_KEYS}")
    try:
        return model.model_validate({key: item for key, item in value.items() if item is not None})
    except ValidationError as error:
        raise first_problem(error, model, where) from None


def flat_name(namespace: str | None, name: str) -> str:
    """Return the name of a function in chat requests, which have no namespaces."""
    return name if namespace is None else f"{namespace}__{name}"


class ItemReader:
    """Makes chat messages from items, which are added one by one."""

    def __init__(self, instructions: str | None) -> None:
        self._messages: list[dict[str, Any]] = []
        if instructions is not None:
            self._messages.append({"role": "system", "content": instructions})
        self._turn: dict[str, Any] | None = None
        """The last message, if this is a turn of the model to which further items may be added."""
        self._reasoning = ""
        """The reasoning before the next turn of the model, which will contain this reasoning."""
        self._reasoning_at = ""
        """The place in the request of the reasoning before the next turn; empty if no reasoning waits."""
        self._calls: set[str] = set()
        """The ids of all calls so far."""

    def add(self, raw: Mapping[str, Any], where: str) -> None:
        """Add an item. ``where``: the item's place in the request."""
        kind = raw.get("type", "message")
        if kind == "item_reference":
            raise UnsupportedParameter.at(where, ": the gateway stores no items; send the item itself")
        if not isinstance(kind, str) or kind not in ITEMS:
            name = quoted(kind) if isinstance(kind, str) else "not a string"
            raise UnsupportedParameter.at(
                f"{where}.type", f" is {name}; the gateway accepts items of type {', '.join(ITEMS)}"
            )
        item = checked(ITEMS[kind], raw, where)
        if isinstance(item, ReasoningItem):
            self._add_reasoning(item, where)
        elif isinstance(item, FunctionCallItem):
            self._add_call(item)
        elif isinstance(item, FunctionOutputItem):
            self._add_output(item, where)
        elif isinstance(item, MessageItem):
            self._add_message(item, where)

    def finish(self) -> list[dict[str, Any]]:
        """Return the messages. Call after the last item."""
        self._end_turn()
        return self._messages

    def _add_message(self, item: MessageItem, where: str) -> None:
        content = _content(item.content, f"{where}.content")
        if item.role != "assistant":
            self._end_turn()
            self._messages.append({"role": item.role, "content": content})
            return
        turn = self._turn
        if turn is None or turn["content"] is not None or "refusal" in turn:
            turn = self._begin_turn()
        refusal = ""
        if not isinstance(content, str):
            refusal = "".join([part["refusal"] for part in content if part["type"] == "refusal"])
            content = [part for part in content if part["type"] != "refusal"]
        if refusal:
            turn["refusal"] = refusal
        if content or not refusal:
            turn["content"] = content

    def _add_call(self, item: FunctionCallItem) -> None:
        turn = self._turn if self._turn is not None else self._begin_turn()
        self._calls.add(item.call_id)
        function = {"name": flat_name(item.namespace, item.name), "arguments": item.arguments}
        turn.setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": function})

    def _add_output(self, item: FunctionOutputItem, where: str) -> None:
        self._end_turn()
        if item.call_id not in self._calls:
            raise InvalidValue.at(
                f"{where}.call_id", ": no earlier function_call has this id; send the call before its output"
            )
        content = _content(item.output, f"{where}.output")
        self._messages.append({"role": "tool", "tool_call_id": item.call_id, "content": content})

    def _add_reasoning(self, item: ReasoningItem, where: str) -> None:
        field, pieces = ("content", item.content) if item.content else ("summary", item.summary or ())
        text = "".join(
            [checked(ReasoningText, piece, f"{where}.{field}[{number}]").text for number, piece in enumerate(pieces)]
        )
        if not text and item.encrypted_content:
            raise UnsupportedParameter.at(
                f"{where}.encrypted_content", " can be read only by the server that wrote it; leave this item out"
            )
        turn = self._turn
        if turn is not None and "tool_calls" in turn:  # the model went on thinking between its calls
            if text:
                turn["reasoning_content"] = turn.get("reasoning_content", "") + text
            return
        self._turn = None
        self._reasoning += text
        self._reasoning_at = self._reasoning_at or where

    def _begin_turn(self) -> dict[str, Any]:
        turn: dict[str, Any] = {"role": "assistant", "content": None}
        if self._reasoning:
            turn["reasoning_content"] = self._reasoning
        self._reasoning = self._reasoning_at = ""
        self._turn = turn
        self._messages.append(turn)
        return turn

    def _end_turn(self) -> None:
        if self._reasoning:
            raise InvalidValue.at(
                self._reasoning_at,
                ": a message or a function call of the model must follow reasoning; "
                "send the next item too, or leave the reasoning out",
            )
        self._turn, self._reasoning_at = None, ""


def variable(value: Any, where: str) -> Any:
    """Return the value of a prompt variable. A content part is replaced by its text or by its image address."""
    kind = value.get("type") if isinstance(value, Mapping) else None
    if not isinstance(kind, str) or kind not in CONTENT_PARTS:
        return value
    part = _part(value, where)
    if part["type"] == "text":
        return part["text"]
    if part["type"] == "image_url":
        return part["image_url"]["url"]
    raise UnsupportedParameter.at(where, ": a variable may be a text, an image or a JSON value")


def _content(value: str | Sequence[Mapping[str, Any]], where: str) -> Any:
    """Return the content for chat: a string, or a list of parts. A single text part becomes a string."""
    if isinstance(value, str):
        return value
    parts = [_part(part, f"{where}[{number}]") for number, part in enumerate(value)]
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _part(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    kind = raw.get("type")
    if not isinstance(kind, str) or kind not in CONTENT_PARTS:
        raise InvalidValue.at(f"{where}.type", f" must be one of {', '.join(CONTENT_PARTS)}")
    part = checked(CONTENT_PARTS[kind], raw, where)
    if isinstance(part, TextContent):
        return {"type": "text", "text": part.text}
    if isinstance(part, RefusalContent | AudioContent):
        return part.model_dump()
    if isinstance(part, ImageContent):
        if part.image_url is None or part.file_id is not None:
            raise _no_medium(where, "image_url", "an address or a data: URI")
        detail = {} if part.detail is None else {"detail": part.detail}
        return {"type": "image_url", "image_url": {"url": part.image_url, **detail}}
    assert isinstance(part, FileContent)
    if part.file_data is None or part.file_id is not None or part.file_url is not None:
        raise _no_medium(where, "file_data", "a data: URI")
    name = {} if part.filename is None else {"filename": part.filename}
    return {"type": "file", "file": {**name, "file_data": part.file_data}}


def _no_medium(where: str, field: str, form: str) -> UnsupportedParameter:
    return UnsupportedParameter(
        f"{where}: the gateway stores no files; send {form} in {field}", param=f"{where}.{field}"
    )
