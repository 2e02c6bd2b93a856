"""Finds the template's role that writes the messages of an OpenAI role (``docs/spec/opencompass.md`` 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from metatemplate.errors import UnknownRole
from metatemplate.templates.spec import RoleSpec, TemplateSpec
from metatemplate.values.dialogue import Message
from metatemplate.values.words import in_ascii

STANDARD_ROLES: Mapping[str, str] = {"system": "SYSTEM", "developer": "SYSTEM", "user": "HUMAN", "assistant": "BOT"}
SYSTEM = "SYSTEM"
FALLBACKS: Mapping[str, str] = {SYSTEM: "HUMAN"}
"""Template role → the role that replaces a missing role, as in OpenCompass's datasets. ``fallback_role`` overrides
this."""
FALLBACK_FIELD = "fallback_role"
"""The field of a message with the name of a second role, which is used if the template lacks the message's role."""
UNKNOWN = "unknown role"
"""The text that replaces a client's role name in a notice. Notices never contain text of clients."""
API_ROLES: Mapping[str, str] = {"HUMAN": "user", "BOT": "assistant", "SYSTEM": "system", "TOOL": "tool"}
"""``api_role`` → OpenAI role."""


@dataclass(frozen=True, slots=True)
class RoleMapping:
    """The template's role for the messages of one OpenAI role."""

    role: RoleSpec
    place: int | None
    """The index of ``role`` in the round; None for reserved roles."""
    is_system: bool = False
    """Whether the role is for system messages, which never start a new round."""
    fallback_for: str = ""
    """The missing role of the template that ``role`` replaces; empty if no role is missing."""


class RoleMap(dict[str, RoleMapping]):
    """Role of a message → role of the template, for every message role that the template can write."""

    def __init__(self, spec: TemplateSpec) -> None:
        super().__init__(_mappings(spec))
        self.template = spec.name
        """The name of the template, for errors."""


def role_names(spec: TemplateSpec) -> dict[str, str]:
    """Return a map from the role of a message to the name of the template's role.

    The template may not define the named role. The names of the template's roles are also valid message roles.
    """
    own = {entry.role: entry.role for entry in (*spec.round, *spec.reserved_roles) if isinstance(entry, RoleSpec)}
    return {**STANDARD_ROLES, **{name: name for name in own if name not in STANDARD_ROLES}, **spec.roles}


def _mappings(spec: TemplateSpec) -> Iterator[tuple[str, RoleMapping]]:
    roles = {entry.role: entry for entry in (*spec.round, *spec.reserved_roles) if isinstance(entry, RoleSpec)}
    for openai_role, wanted in role_names(spec).items():
        name = wanted if wanted in roles else FALLBACKS.get(wanted, "")
        if name in roles:
            role = roles[name]
            place = spec.round.index(role) if role in spec.round else None
            yield openai_role, RoleMapping(role, place, wanted == SYSTEM, "" if name == wanted else wanted)


def mapping_of(roles: RoleMap, message: Message, number: int) -> RoleMapping:
    """Return the template's role for ``messages[number]``. Raises UnknownRole if there is no such role.

    If the template lacks the message's role, the ``fallback_role`` of the message is used, if present.
    """
    mapping = roles.get(message.role)
    if mapping is not None and not mapping.fallback_for:
        return mapping
    fallback = message.raw.get(FALLBACK_FIELD)
    if fallback is not None:
        other = roles.get(fallback) if isinstance(fallback, str) else None
        if other is None or other.fallback_for:
            raise UnknownRole(
                f'template {roles.template} has no role for "{in_ascii(message.role, 32)}" and no role for the '
                f'fallback_role "{in_ascii(fallback, 32)}"; supported roles: {", ".join(roles)}',
                param=f"messages[{number}].{FALLBACK_FIELD}",
            )
        if mapping is None:
            return replace(other, fallback_for=UNKNOWN)
        return replace(other, fallback_for=mapping.fallback_for, is_system=mapping.is_system)
    if mapping is None:
        raise UnknownRole(
            f'template {roles.template} has no role for "{in_ascii(message.role, 32)}"; '
            f"supported roles: {', '.join(roles)}. "
            "Use one of these, add a fallback_role to the message, or map the role under `roles` in the template.",
            param=f"messages[{number}].role",
        )
    return mapping
