"""The roles of a meta template by name, and the role of a turn (``docs/spec/opencompass.md`` 4.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core.errors import TemplateError

Turn = Mapping[str, Any]
Role = dict[str, Any]


class RoleTable:
    """A meta template's roles by name, and the order of its round."""

    def __init__(self, meta_template: Mapping[str, Any]) -> None:
        """``meta_template`` has the list ``round``, and perhaps ``reserved_roles``; role names are unique."""
        self.round: list[str | Role] = meta_template["round"]
        roles = [entry for entry in self.round if isinstance(entry, dict)]
        self.places: dict[str, int] = {role["role"]: self.round.index(role) for role in roles}
        """Role name → its place in the round; texts take places too."""
        self._roles: dict[str, Role] = {role["role"]: role for role in (*roles, *meta_template["reserved_roles"])}

    def name_of(self, turn: Turn) -> Any:
        """The turn's own role if it is defined, else its fallback, defined or not."""
        name = turn["role"]
        return name if name in self._roles else turn.get("fallback_role")

    def role_of(self, turn: Turn) -> Role:
        """The role that writes this turn; the turn's keys override the role's. Raises TemplateError."""
        name = self.name_of(turn)
        if name not in self._roles:
            raise no_role(turn)
        return {**self._roles[name], **turn}

    def filled_round(self, turns: Sequence[Turn]) -> list[Role]:
        """The roles of the whole round; the keys of each turn override those of its role.

        A turn of a reserved role has no place here and is dropped, as in the reference's API parser.
        """
        filled: dict[Any, Role] = {}
        for turn in turns:
            name = self.name_of(turn)
            filled[name] = {**filled.get(name, self._roles.get(name, {})), **turn}
        return [filled.get(role["role"], role) for role in self.round if isinstance(role, dict)]


def no_role(turn: Turn) -> TemplateError:
    """The error for a turn without a usable role. It names the role, not the text."""
    fallback = turn.get("fallback_role")
    tried = f'role "{turn["role"]}"' + (f' and fallback_role "{fallback}"' if fallback else " and no fallback_role")
    return TemplateError(
        f"a turn has {tried}, and the meta template does not define them; add the role or give a fallback_role"
    )
