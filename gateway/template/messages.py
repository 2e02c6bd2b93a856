"""Who speaks a message, and what may a message hold?

OpenAI roles become roles of the template: system and developer → SYSTEM, user →
HUMAN, assistant → BOT, and whatever ``roles`` adds. Only SYSTEM has a fallback,
HUMAN, as the datasets of OpenCompass write it (``specs/opencompass.md`` 8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.core.dialogue import Dialogue, Message
from gateway.core.errors import InvalidValue, MediaNotSupported, RoleNotSupported, UnsupportedParameter
from gateway.core.prompt import Notice
from gateway.template.spec.template import RoleSpec, TemplateSpec

STANDARD_ROLES: Mapping[str, str] = {
    "system": "SYSTEM",
    "developer": "SYSTEM",
    "user": "HUMAN",
    "assistant": "BOT",
}
SYSTEM = "SYSTEM"
FALLBACKS: Mapping[str, str] = {SYSTEM: "HUMAN"}

CALL_FIELDS = ("tool_calls", "function_call")
"""Fields of a message that a string template has no place for, so the request is refused."""
UNREAD_FIELDS = ("name", "tool_call_id", "reasoning_content", "reasoning", "refusal", "audio")
"""Fields of a message that a string template leaves out, and says so."""

MAX_SHOWN = 32
"""Characters of a client's role name that an error repeats, escaped."""


@dataclass(frozen=True, slots=True)
class RoleMapping:
    """A role of the template, as one OpenAI role speaks through it."""

    role: RoleSpec
    place: int | None
    """Where it stands in the round; None for reserved roles."""
    system: bool = False
    """System messages are spoken where they stand and start no round."""
    fallback_for: str = ""
    """The role that was wanted, when this one stands in for it."""


def role_names(spec: TemplateSpec) -> dict[str, str]:
    """OpenAI role → template role."""
    return {**STANDARD_ROLES, **spec.roles}


class Speakers:
    """The template's roles by OpenAI role, looked up once when the template is built."""

    def __init__(self, spec: TemplateSpec) -> None:
        self._by_role = dict(_speakers(spec))
        self._knows = ", ".join(self._by_role)

    def __getitem__(self, openai_role: str) -> RoleMapping:
        return self._by_role[openai_role]

    def get(self, openai_role: str) -> RoleMapping | None:
        """The role's speaker; None: nobody here can speak it."""
        return self._by_role.get(openai_role)

    def __contains__(self, openai_role: object) -> bool:
        return openai_role in self._by_role

    def items(self) -> Iterator[tuple[str, RoleMapping]]:
        """OpenAI roles with their speakers."""
        yield from self._by_role.items()

    def refuse(self, openai_role: str, number: int) -> RoleNotSupported:
        """The error for a role that nobody here can speak."""
        shown = ascii(openai_role[:MAX_SHOWN])[1:-1]
        return RoleNotSupported(
            f'this model\'s template has no role for "{shown}"; it knows {self._knows}. '
            "Use one of these, or map the role under `roles` in the template.",
            param=f"messages[{number}].role",
        )


def _speakers(spec: TemplateSpec) -> Iterator[tuple[str, RoleMapping]]:
    roles = {entry.role: entry for entry in (*spec.round, *spec.reserved_roles) if isinstance(entry, RoleSpec)}
    for openai_role, wanted in role_names(spec).items():
        name = wanted if wanted in roles else FALLBACKS.get(wanted, "")
        if name in roles:
            role = roles[name]
            place = spec.round.index(role) if role in spec.round else None
            yield openai_role, RoleMapping(role, place, wanted == SYSTEM, "" if name == wanted else wanted)


# ---------------------------------------------------------------- what a string template can take


def check_dialogue(dialogue: Dialogue) -> None:
    """Raises UnsupportedParameter for tools, InvalidValue for an open turn that is not the assistant's."""
    if dialogue.tools:
        raise UnsupportedParameter(
            "this model's template writes no tools: it declares no tool parser. Leave `tools` out.", param="tools"
        )
    check_open_turn(dialogue)


def refuse_variables(dialogue: Dialogue) -> None:
    """Raises InvalidValue for variables, in a template that has no slots for them."""
    if dialogue.variables:
        raise InvalidValue(
            "this model's template has no slots, so it takes no variables. Leave `gateway.variables` out.",
            param="gateway.variables",
        )


def check_open_turn(dialogue: Dialogue) -> None:
    """Raises InvalidValue when a turn shall be continued that the assistant has not begun, and for variables."""
    refuse_variables(dialogue)
    if dialogue.continue_final and (not dialogue.messages or dialogue.messages[-1].role != "assistant"):
        raise InvalidValue(
            "continue_final_message continues the last message, which must be the assistant's",
            param="continue_final_message",
        )


def content_of(message: Message, number: int, media: str | None) -> str:
    """The message's text; media parts become the template's placeholder.

    Raises MediaNotSupported without a placeholder, UnsupportedParameter for tool calls.
    """
    if message.raw:
        _check_fields(message.raw, number)
    return text_of(message, number, media)


def text_of(message: Message, number: int, media: str | None) -> str:
    """``content_of`` for templates that write tool calls themselves. Raises MediaNotSupported."""
    if not message.parts:
        return message.text
    return "".join(
        [part.text if part.kind == "text" else _medium(media, number, i) for i, part in enumerate(message.parts)]
    )


def unread_fields(message: Message, number: int) -> Iterator[Notice]:
    """One notice for each field that the rendered string leaves out."""
    if message.raw:
        for field in UNREAD_FIELDS:
            if message.raw.get(field):
                yield Notice("ignored_field", f"messages[{number}].{field}")


def _check_fields(raw: Mapping[str, Any], number: int) -> None:
    for field in CALL_FIELDS:
        if raw.get(field):
            raise UnsupportedParameter(
                f"this model's template cannot write {field}: it declares no tool parser",
                param=f"messages[{number}].{field}",
            )


def _medium(media: str | None, number: int, part: int) -> str:
    if media is None:
        raise MediaNotSupported(
            "this model takes text only: its template declares no `media` placeholder",
            param=f"messages[{number}].content[{part}]",
        )
    return media
