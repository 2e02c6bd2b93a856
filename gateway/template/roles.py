"""Finds the template's role that writes the messages of an OpenAI role (``docs/spec/opencompass.md`` 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gateway.core.errors import RoleNotSupported
from gateway.template.spec import RoleSpec, TemplateSpec

STANDARD_ROLES: Mapping[str, str] = {"system": "SYSTEM", "developer": "SYSTEM", "user": "HUMAN", "assistant": "BOT"}
SYSTEM = "SYSTEM"
FALLBACKS: Mapping[str, str] = {SYSTEM: "HUMAN"}
"""Template role → the role that replaces a missing one. OpenCompass's datasets name a fallback for SYSTEM only."""
API_ROLES: Mapping[str, str] = {"HUMAN": "user", "BOT": "assistant", "SYSTEM": "system", "TOOL": "tool"}
"""``api_role`` → OpenAI role."""

MAX_SHOWN = 32
"""An error repeats at most this many characters of a role name from the client."""


@dataclass(frozen=True, slots=True)
class RoleMapping:
    """The template's role that writes the messages of one OpenAI role."""

    role: RoleSpec
    place: int | None
    """The index of ``role`` in the round; None for reserved roles."""
    is_system: bool = False
    """True for the role of system messages, which never start a new round."""
    fallback_for: str = ""
    """The role that the template does not have, if ``role`` replaces it; else empty."""


RoleMap = Mapping[str, RoleMapping]
"""OpenAI role → the role of the template."""


def role_names(spec: TemplateSpec) -> dict[str, str]:
    """OpenAI role → name of the template role, also if the template does not define this role."""
    return {**STANDARD_ROLES, **spec.roles}


def role_map(spec: TemplateSpec) -> RoleMap:
    """The mapping of each OpenAI role whose messages the template can write."""
    return dict(_mappings(spec))


def _mappings(spec: TemplateSpec) -> Iterator[tuple[str, RoleMapping]]:
    roles = {entry.role: entry for entry in (*spec.round, *spec.reserved_roles) if isinstance(entry, RoleSpec)}
    for openai_role, wanted in role_names(spec).items():
        name = wanted if wanted in roles else FALLBACKS.get(wanted, "")
        if name in roles:
            role = roles[name]
            place = spec.round.index(role) if role in spec.round else None
            yield openai_role, RoleMapping(role, place, wanted == SYSTEM, "" if name == wanted else wanted)


def mapping_of(roles: RoleMap, openai_role: str, number: int) -> RoleMapping:
    """The template's role for ``messages[number]``. Raises RoleNotSupported."""
    mapping = roles.get(openai_role)
    if mapping is None:
        raise RoleNotSupported(
            f'this model\'s template has no role for "{ascii(openai_role[:MAX_SHOWN])[1:-1]}"; '
            f"it has {', '.join(roles)}. Use one of these, or map the role under `roles` in the template.",
            param=f"messages[{number}].role",
        )
    return mapping
