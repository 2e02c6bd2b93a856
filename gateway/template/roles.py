"""OpenAI roles and the template's roles that write their messages (``docs/spec/opencompass.md`` 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gateway.core.errors import RoleNotSupported
from gateway.template.spec import RoleSpec, TemplateSpec

STANDARD_ROLES: Mapping[str, str] = {"system": "SYSTEM", "developer": "SYSTEM", "user": "HUMAN", "assistant": "BOT"}
SYSTEM = "SYSTEM"
FALLBACKS: Mapping[str, str] = {SYSTEM: "HUMAN"}
"""Only SYSTEM has a fallback, as the datasets of OpenCompass write it."""
API_ROLES: Mapping[str, str] = {"HUMAN": "user", "BOT": "assistant", "SYSTEM": "system", "TOOL": "tool"}
"""``api_role`` → OpenAI role."""

MAX_SHOWN = 32
"""Characters of a client's role name that an error repeats, escaped."""


@dataclass(frozen=True, slots=True)
class RoleMapping:
    """The template's role that writes the messages of one OpenAI role."""

    role: RoleSpec
    place: int | None
    """Its place in the round; None for reserved roles."""
    is_system: bool = False
    """System messages stay where they are and start no round."""
    fallback_for: str = ""
    """The missing role that this one replaces."""


RoleMap = Mapping[str, RoleMapping]
"""By OpenAI role."""


def role_names(spec: TemplateSpec) -> dict[str, str]:
    """OpenAI role → template role, defined or not."""
    return {**STANDARD_ROLES, **spec.roles}


def role_map(spec: TemplateSpec) -> RoleMap:
    """The OpenAI roles that the template can write."""
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
    """The mapping for the role of ``messages[number]``. Raises RoleNotSupported."""
    mapping = roles.get(openai_role)
    if mapping is None:
        raise RoleNotSupported(
            f'this model\'s template has no role for "{ascii(openai_role[:MAX_SHOWN])[1:-1]}"; '
            f"it has {', '.join(roles)}. Use one of these, or map the role under `roles` in the template.",
            param=f"messages[{number}].role",
        )
    return mapping
