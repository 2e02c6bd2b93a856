"""Reads messages with content parts, and prompts as strings or token ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core.errors import InvalidValue
from gateway.core.exchange import RawPrompt
from gateway.wire.json import refuse_lost_digits
from gateway.wire.request_fields import MAX_PROMPTS
from metatemplate.values.dialogue import Message, Part

INTEGERS, STRINGS, LISTS = {int}, {str}, {list}
"""Sets of the item types in a prompt. Sets are compared fast, also for a prompt with a million items."""


def read_message(raw: Mapping[str, Any], number: int, field: str = "messages") -> Message:
    """Read ``messages[number]``, whose fields are already checked. Raises ``InvalidValue``.

    ``field``: the name of the list, if it is not ``messages``.
    """
    param = f"{field}[{number}]"
    refuse_lost_digits(raw, param)
    role, content = raw["role"], raw.get("content")
    if content is None and role != "assistant":
        raise InvalidValue.at(f"{param}.content", " is missing; only an assistant message may leave it out")
    if content is None or isinstance(content, str):
        return Message(role, content or "", (), raw)
    parts = []
    for index, part in enumerate(content):
        text = part.get("text")
        if text is None and part["type"] == "text":
            raise InvalidValue.at(f"{param}.content[{index}].text", " is missing")
        parts.append(Part(part["type"], text or ""))
    return Message(role, "".join([part.text for part in parts]), tuple(parts), raw)


def read_prompts(value: object, param: str = "prompt", most: int = MAX_PROMPTS) -> tuple[tuple[RawPrompt, ...], bool]:
    """Return the prompts in ``value``, and whether ``value`` is a list of prompts. Raises ``InvalidValue``.

    A prompt is a string or a list of token ids.
    """
    if isinstance(value, str):
        return (value,), False
    if isinstance(value, list) and value:
        kinds = set(map(type, value))
        if kinds == INTEGERS:
            return (_ids(value, param),), False
        if len(value) > most:
            raise InvalidValue.at(param, f" may have at most {most} prompts in one call")
        if kinds == STRINGS:
            return tuple(value), True
        if kinds == LISTS and all(set(map(type, item)) == INTEGERS for item in value):
            return tuple(_ids(item, f"{param}[{index}]") for index, item in enumerate(value)), True
    raise InvalidValue.at(
        param,
        " must be a string, a list of strings, a list of token ids or a list of lists of token ids, "
        "and a list must not be empty",
    )


def _ids(value: list[int], param: str) -> tuple[int, ...]:
    if min(value) < 0 or max(value) >= 2**31:
        raise InvalidValue.at(param, " contains a token id outside 0 … 2^31-1")
    return tuple(value)
