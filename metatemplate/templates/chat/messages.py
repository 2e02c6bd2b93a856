"""Checks of a dialogue, and the text of a message, for templates that write a string."""

from __future__ import annotations

from collections.abc import Iterator

from metatemplate.errors import InvalidInput, UnsupportedInput, UnsupportedMedia
from metatemplate.values.dialogue import Dialogue, Message, Part
from metatemplate.values.prompt import Notice
from metatemplate.values.words import in_ascii

CALL_FIELDS = ("tool_calls", "function_call")
"""The fields of a message with tool calls. A template without the key ``tools`` refuses a message with these fields."""
UNREAD_FIELDS = ("name", "tool_call_id", "reasoning_content", "reasoning", "refusal", "audio")
"""The fields of a message that string templates leave out. Each field that is left out gets a notice."""


def origin_of(number: int) -> str:
    """Return the origin of a segment that comes from ``messages[number]``."""
    return f"messages[{number}]"


def check_generates(generating: object, *, whole: bool, param: str = "messages") -> None:
    """Raise InvalidInput for a request for an answer if the template has no generating role (None).

    ``whole``: whether the conversation is complete, so that no answer is opened.
    """
    if generating is None and not whole:
        raise InvalidInput(
            "this model's template has no role with generate: true, so it renders only complete conversations for "
            "scoring; send them to /v1/loglikelihood, or with add_generation_prompt: false (gateway render --whole)",
            param=param,
        )


def check_dialogue(dialogue: Dialogue) -> None:
    """Check a request to a template without the key ``tools``.

    Raises UnsupportedInput if the request has tools, and the errors of ``check_open_turn``.
    """
    if dialogue.options.tools:
        raise UnsupportedInput(
            "this model's template does not support tools: it has no key `tools`. Leave tools out of the request.",
            param="tools",
        )
    check_open_turn(dialogue)


def check_open_turn(dialogue: Dialogue) -> None:
    """Check a request to a template without slots for variables.

    Raises InvalidInput if the request has variables. Also raises InvalidInput if the request has
    ``continue_final_message`` and the last message is not from the assistant.
    """
    refuse_variables(dialogue)
    if dialogue.options.continue_final and (not dialogue.messages or dialogue.messages[-1].role != "assistant"):
        raise InvalidInput(
            "continue_final_message requires an assistant message as the last message", param="continue_final_message"
        )


def refuse_variables(dialogue: Dialogue) -> None:
    """Raise InvalidInput if the request has variables."""
    if dialogue.options.variables:
        raise InvalidInput(
            "this model's template has no slots for variables; leave `gateway.variables` out of the request",
            param="gateway.variables",
        )


def content_of(message: Message, number: int, media: str | None) -> str:
    """Return the text of ``messages[number]``. The text ``media`` replaces each part that is not text.

    Raises UnsupportedInput for tool calls, and UnsupportedMedia if ``media`` is None and a part is not text.
    """
    for field in CALL_FIELDS if has_fields(message) else ():
        if message.raw.get(field):
            raise UnsupportedInput(
                f"this model's template cannot write {field}: it has no key `tools`",
                param=f"messages[{number}].{field}",
            )
    return text_of(message, number, media)


def has_fields(message: Message) -> bool:
    """Return whether the message may have fields other than the role and the text."""
    return len(message.raw) > 2 or not message.text


def text_of(message: Message, number: int, media: str | None) -> str:
    """Return the text of ``messages[number]``. Like ``content_of``, but tool calls are allowed."""
    if not message.parts:
        return message.text
    return "".join(
        [_part_text(part, media, f"messages[{number}].content[{i}]") for i, part in enumerate(message.parts)]
    )


def _part_text(part: Part, media: str | None, param: str) -> str:
    if part.kind == "text":
        return part.text
    if media is None:
        raise UnsupportedMedia(text_only(part.kind), param=param)
    return media


def text_only(kind: str) -> str:
    """Return the error message for a content part of type ``kind``, sent to a template that accepts only text."""
    return (
        f"this model accepts only text: send parts of type text, not {in_ascii(kind)} (the template has no key `media`)"
    )


def unread_fields(message: Message, number: int) -> Iterator[Notice]:
    """Yield a notice for each field of ``messages[number]`` that is not in the prompt."""
    for field in UNREAD_FIELDS:
        if message.raw.get(field):
            yield Notice("ignored_field", f"messages[{number}].{field}")
