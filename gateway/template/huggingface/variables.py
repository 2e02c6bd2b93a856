"""What does a chat template see of a request? The messages as ``transformers`` hands them over.

Fields that are null are absent, and reasoning is there under each name that templates read it by, as in
``transformers`` 5 (``apply_chat_template``). Two things differ between the wire and what templates were written for:
the arguments of a tool call are a JSON text on the wire, and content may be a list of parts. The template's file says
what it wants of either (``tool_arguments``, ``content``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.core.dialogue import Dialogue, Message, PlainMessages
from gateway.core.errors import InvalidValue, MediaNotSupported, UnsupportedParameter
from gateway.core.prompt import Notice
from gateway.template.huggingface.sandbox.script import Script
from gateway.template.messages import CALL_FIELDS, UNREAD_FIELDS
from gateway.template.spec.template import JinjaSpec

REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of one thing; templates read the first or the second."""
SAID = frozenset({"role", "content"})
"""The keys of a message that only says something."""
MOST_NESTED = 64
"""Levels of a tool call's arguments: as many as a request's body may have."""


def is_plain(message: Message) -> bool:
    """Is there nothing in the message beside its role and its words?"""
    return message.raw.keys() <= SAID


def all_plain(messages: Sequence[Message]) -> bool:
    """Is there nothing in any of them beside its role and its words?"""
    return type(messages) is PlainMessages or all(is_plain(message) for message in messages)


def messages_of(dialogue: Dialogue, spec: JinjaSpec) -> list[Mapping[str, Any]]:
    """The messages as a template takes them. Raises ``MediaNotSupported``, or ``InvalidValue`` for arguments."""
    if type(dialogue.messages) is PlainMessages:
        return dialogue.messages.raws.copy()
    return [_plain(message, number, spec) for number, message in enumerate(dialogue.messages)]


def _plain(message: Message, number: int, spec: JinjaSpec) -> Mapping[str, Any]:
    raw = message.raw
    if not raw:
        raw = {"role": message.role, "content": message.text}
    elif is_plain(message) and not message.parts and raw.get("content") is not None:
        return raw
    given = {name: value for name, value in raw.items() if value is not None}
    if message.parts:
        for part, one in enumerate(message.parts):
            if one.kind != "text":
                raise MediaNotSupported(
                    "this model takes text only: its prompt is a string", param=f"messages[{number}].content[{part}]"
                )
        if spec.content == "text":
            given["content"] = message.text
    reasoning = next((given[name] for name in REASONING if name in given), None)
    if reasoning is not None:
        given = {"thinking": reasoning, **given, "reasoning_content": reasoning}
    if given.get("tool_calls") and spec.tool_arguments == "object":
        given["tool_calls"] = [
            _with_object(call, f"messages[{number}].tool_calls[{place}]")
            for place, call in enumerate(given["tool_calls"])
        ]
    return given


def _with_object(call: Mapping[str, Any], param: str) -> Mapping[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError:
        arguments = None
    except RecursionError:
        raise _too_deep(param) from None
    if not isinstance(arguments, dict):
        raise InvalidValue(
            "the arguments of a tool call must be a JSON object, because this model's template writes them out",
            param=f"{param}.function.arguments",
        )
    level: list[Any] = [arguments]
    for _ in range(MOST_NESTED):
        level = [inner for one in level for inner in _inside(one)]
    if level:
        raise _too_deep(param)
    return {**call, "function": {**function, "arguments": arguments}}


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _too_deep(param: str) -> InvalidValue:
    return InvalidValue(
        f"the arguments of a tool call nest deeper than {MOST_NESTED} levels", param=f"{param}.function.arguments"
    )


def check_fields(dialogue: Dialogue, script: Script) -> None:
    """Refuse calls that the template has no word for. Raises ``UnsupportedParameter``."""
    for number, message in enumerate(dialogue.messages):
        if not is_plain(message):
            for field in CALL_FIELDS:
                if message.raw.get(field) and not script.speaks_of(field):
                    raise UnsupportedParameter(
                        f"this model's chat template cannot write {field}", param=f"messages[{number}].{field}"
                    )


def unread(dialogue: Dialogue, script: Script) -> Iterator[Notice]:
    """One notice for each field of a message that the template does not speak of."""
    for number, message in enumerate(dialogue.messages):
        if not is_plain(message):
            for field in UNREAD_FIELDS:
                names = REASONING if field in REASONING else (field,)
                if message.raw.get(field) and not any(script.speaks_of(name) for name in names):
                    yield Notice("ignored_field", f"messages[{number}].{field}")


MOST_UNSEEN = 8
"""Messages that are looked for in vain; then a notice of the first few says enough."""


def unseen(dialogue: Dialogue, text: str) -> Iterator[Notice]:
    """One notice for each message whose words are not in the prompt as they stand: left out, or changed."""
    at, missed = 0, 0
    for number, said in enumerate(dialogue.texts):
        words = said.strip()
        found = text.find(words, at)
        if found >= 0:
            at = found + len(words)
            continue
        if words not in text:
            yield Notice("changed_content", f"messages[{number}]")
        missed += 1
        if missed == MOST_UNSEEN:
            return
