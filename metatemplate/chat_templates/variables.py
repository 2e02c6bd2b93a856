"""The messages of a request as a chat template gets them from ``apply_chat_template`` of ``transformers`` 5.

Fields that are null are left out (but see ``call_content.py``). Reasoning is given under each field name that templates
read. The template file chooses the form of two fields: ``tool_arguments`` for the arguments of a tool call, which are
JSON text in a request, and ``content`` for the content, which may be a list of parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from metatemplate.chat_templates.sandbox.compiled_template import CompiledTemplate
from metatemplate.errors import InvalidInput, UnsupportedInput, UnsupportedMedia
from metatemplate.templates.chat.messages import CALL_FIELDS, UNREAD_FIELDS
from metatemplate.templates.spec import JinjaSpec
from metatemplate.values.dialogue import Dialogue, Message, PlainMessages
from metatemplate.values.json_values import MAX_DEPTH, deeper_than
from metatemplate.values.prompt import Notice
from metatemplate.values.words import in_ascii

PLAIN_KEYS = frozenset({"role", "content"})
REASONING = ("reasoning_content", "thinking", "reasoning")
"""The names of the field with the reasoning. A template reads one of these names."""
MAX_CHANGED = 8
"""The largest number of notices about changed messages in one answer."""


def template_messages(dialogue: Dialogue, spec: JinjaSpec) -> list[Mapping[str, Any]]:
    """Return the messages for the template, as a new list.

    Raises ``UnsupportedMedia``, or ``InvalidInput`` for arguments of a tool call that are not a JSON object.
    """
    if type(dialogue.messages) is PlainMessages:
        return dialogue.messages.raws.copy()
    return [_template_message(message, number, spec) for number, message in enumerate(dialogue.messages)]


def _template_message(message: Message, number: int, spec: JinjaSpec) -> Mapping[str, Any]:
    raw = message.raw or {"role": message.role, "content": message.text}
    fields = {name: value for name, value in raw.items() if value is not None}
    for index, part in enumerate(message.parts):
        if part.kind != "text":
            raise UnsupportedMedia(
                f"this model accepts only text: send parts of type text, not {in_ascii(part.kind)}",
                param=f"messages[{number}].content[{index}]",
            )
    if message.parts and spec.content == "text":
        fields["content"] = message.text
    reasoning = next((fields[name] for name in REASONING if name in fields), None)
    if reasoning is not None:
        fields = {"thinking": reasoning, **fields, "reasoning_content": reasoning}
    if fields.get("tool_calls") and spec.tool_arguments == "object":
        fields["tool_calls"] = [
            _with_arguments(call, f"messages[{number}].tool_calls[{index}].function.arguments")
            for index, call in enumerate(fields["tool_calls"])
        ]
    return fields


def _with_arguments(call: Mapping[str, Any], param: str) -> Mapping[str, Any]:
    """Return the tool call. Arguments that are JSON text are parsed."""
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
        is_too_deep = deeper_than(arguments, MAX_DEPTH)
    except ValueError:
        arguments, is_too_deep = None, False
    except RecursionError:
        arguments, is_too_deep = None, True
    if is_too_deep:
        raise InvalidInput(f"the arguments of a tool call nest deeper than {MAX_DEPTH} levels", param=param)
    if not isinstance(arguments, dict):
        raise InvalidInput("the arguments of a tool call must be a JSON object", param=param)
    return {**call, "function": {**function, "arguments": arguments}}


def check_call_fields(dialogue: Dialogue, template: CompiledTemplate) -> None:
    """Raise ``UnsupportedInput`` if a message has tool calls and the template cannot write tool calls."""
    for number, raw in _with_more_fields(dialogue):
        for field in CALL_FIELDS:
            if raw.get(field) and not template.mentions(field):
                raise UnsupportedInput(
                    f"this model's chat template does not support {field}; leave it out",
                    param=f"messages[{number}].{field}",
                )


def ignored_fields(dialogue: Dialogue, template: CompiledTemplate) -> list[Notice]:
    """Return a notice for each field of a message that the template does not read."""
    notices = []
    for number, raw in _with_more_fields(dialogue):
        for field in UNREAD_FIELDS:
            names = REASONING if field in REASONING else (field,)
            if raw.get(field) and not any(map(template.mentions, names)):
                notices.append(Notice("ignored_field", f"messages[{number}].{field}"))
    return notices


def _with_more_fields(dialogue: Dialogue) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (index, fields) of each message that has fields in addition to the role and the content."""
    if type(dialogue.messages) is not PlainMessages:
        for number, message in enumerate(dialogue.messages):
            if not message.raw.keys() <= PLAIN_KEYS:
                yield number, message.raw


def changed_messages(dialogue: Dialogue, prompt: str) -> list[Notice]:
    """Return a notice for each message whose text is changed in the prompt; at most ``MAX_CHANGED`` notices."""
    notices: list[Notice] = []
    at, missed = 0, 0
    for number, text in enumerate(dialogue.texts):
        text = text.strip()
        found = prompt.find(text, at)
        if found >= 0:
            at = found + len(text)
            continue
        if text not in prompt:
            notices.append(Notice("changed_content", f"messages[{number}]"))
        missed += 1
        if missed == MAX_CHANGED:
            break
    return notices
