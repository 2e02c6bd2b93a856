"""The content of a message that has tool calls and no text. Clients send null there, or no content.

``transformers`` leaves the key out. Some templates fail without the key, or refuse the conversation. So the forms in
``CONTENT_FORMS`` are tried in each call, one after the other: what ``transformers`` renders stays the same.
At load, ``JinjaTemplate`` renders round trips of a tool call, to find which forms a template is expected to need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from metatemplate.values.dialogue import Dialogue, Message, RenderOptions

CONTENT_FORMS: tuple[Mapping[str, Any], ...] = ({}, {"content": None}, {"content": ""})
"""The forms of a missing content, in the order in which they are tried."""
LEFT_OUT = 0
EMPTY_TEXT = 2
FORM_NAMES = ("left out", "null", '""')


def without_content(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the indexes of the messages that have tool calls and no content."""
    return [
        number for number, fields in enumerate(messages) if fields.get("tool_calls") and fields.get("content") is None
    ]


def with_content_form(messages: Sequence[Mapping[str, Any]], numbers: Sequence[int], form: int) -> list[Any]:
    """Return the messages, with a form of ``CONTENT_FORMS`` in the messages of these indexes."""
    found = list(messages)
    for number in numbers:
        found[number] = {**CONTENT_FORMS[form], **found[number]}
    return found


def tool_call_messages(probe: str, content: str | None) -> tuple[Message, ...]:
    """Return a question, a tool call with this content, and the result of the tool. All texts are ``probe``."""
    call_id = probe[:9]  # some templates accept only ids of this length
    function = {"name": probe, "arguments": f'{{"{probe}": "{probe}"}}'}
    call: Mapping[str, Any] = {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    result: Mapping[str, Any] = {"role": "tool", "tool_call_id": call_id, "content": probe}
    return Message("user", probe), Message("assistant", content or "", (), call), Message("tool", probe, (), result)


def tool_options(probe: str) -> RenderOptions:
    """Return the options of a request with one tool."""
    function = {"name": probe, "description": probe, "parameters": {"type": "object", "properties": {}}}
    return RenderOptions(tools=({"type": "function", "function": function},))


def round_trips(probe: str) -> Iterator[Dialogue]:
    """Yield conversations with a tool call and no content, with and without tools, open and followed by an answer."""
    messages = tool_call_messages(probe, None)
    for options in (RenderOptions(), tool_options(probe)):
        yield Dialogue(messages, options)
        yield Dialogue((*messages, Message("assistant", probe), Message("user", probe)), options)
