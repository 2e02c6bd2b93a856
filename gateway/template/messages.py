"""Checks of a dialogue, and the text of a message, for templates that write a string."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.core.dialogue import Dialogue, Message, Part
from gateway.core.errors import InvalidValue, MediaNotSupported, UnsupportedParameter
from gateway.core.prompt import Notice
from gateway.core.words import in_ascii

CALL_FIELDS = ("tool_calls", "function_call")
"""A template without the key ``tools`` cannot write these fields of a message, so a request with them is refused."""
UNREAD_FIELDS = ("name", "tool_call_id", "reasoning_content", "reasoning", "refusal", "audio")
"""A template that makes a string leaves these fields of a message out and adds a notice."""


def origin_of(number: int) -> str:
    """The origin of a segment that comes from ``messages[number]``."""
    return f"messages[{number}]"


def check_dialogue(dialogue: Dialogue) -> None:
    """``check_open_turn`` for a template without ``tools``. Raises UnsupportedParameter for a request with tools."""
    if dialogue.options.tools:
        raise UnsupportedParameter(
            "this model's template writes no tools: it has no key `tools`. Leave tools out of the request.",
            param="tools",
        )
    check_open_turn(dialogue)


def check_open_turn(dialogue: Dialogue) -> None:
    """Check a request to a template without slots.

    Raises InvalidValue for variables, and for ``continue_final_message`` if the last message is not an assistant's.
    """
    refuse_variables(dialogue)
    if dialogue.options.continue_final and (not dialogue.messages or dialogue.messages[-1].role != "assistant"):
        raise InvalidValue(
            "continue_final_message needs an assistant message at the end", param="continue_final_message"
        )


def refuse_variables(dialogue: Dialogue) -> None:
    """Raises InvalidValue if the request has variables."""
    if dialogue.options.variables:
        raise InvalidValue(
            "this model's template has no slots, so it takes no variables. Leave `gateway.variables` out.",
            param="gateway.variables",
        )


def content_of(message: Message, number: int, media: str | None) -> str:
    """The text of ``messages[number]``, with the text ``media`` in the place of each part that is not text.

    Raises UnsupportedParameter for tool calls, and MediaNotSupported for such a part if ``media`` is None.
    """
    for field in CALL_FIELDS if has_fields(message) else ():
        if message.raw.get(field):
            raise UnsupportedParameter(
                f"this model's template cannot write {field}: it has no key `tools`",
                param=f"messages[{number}].{field}",
            )
    return text_of(message, number, media)


def has_fields(message: Message) -> bool:
    """True if the message may have more fields than a role and a text."""
    return len(message.raw) > 2 or not message.text


def text_of(message: Message, number: int, media: str | None) -> str:
    """``content_of`` for a template that writes tool calls. Raises only MediaNotSupported."""
    if not message.parts:
        return message.text
    return "".join(
        [_part_text(part, media, f"messages[{number}].content[{i}]") for i, part in enumerate(message.parts)]
    )


def _part_text(part: Part, media: str | None, param: str) -> str:
    if part.kind == "text":
        return part.text
    if media is None:
        raise MediaNotSupported(text_only(part.kind), param=param)
    return media


def text_only(kind: str) -> str:
    """The message for a part of another type, sent to a template without the key ``media``."""
    return (
        f"this model takes text only: send parts of type text, not {in_ascii(kind)} (its template has no key `media`)"
    )


def unread_fields(message: Message, number: int) -> Iterator[Notice]:
    """A notice for each field of ``messages[number]`` that is not in the prompt."""
    for field in UNREAD_FIELDS:
        if message.raw.get(field):
            yield Notice("ignored_field", f"messages[{number}].{field}")
