"""Which roles does a meta template know, and how is a speaker looked up?

The checks are those of the reference's parsers (``specs/opencompass.md`` 4.1, 5.1),
the look-up is 4.5: the turn's role, else its ``fallback_role``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.core.errors import TemplateError

Turn = Mapping[str, Any]
Role = dict[str, Any]


class RoleTable:
    """A meta template's roles by name, and the order of its round."""

    def __init__(self, meta_template: Mapping[str, Any]) -> None:
        """Raises TemplateError for a meta template without usable roles."""
        if not isinstance(meta_template, Mapping):
            raise TemplateError("a meta template is a mapping with the key `round`")
        if "round" not in meta_template:
            raise TemplateError("round is required in a meta template")
        self.round: list[str | Role] = []
        self.order: dict[str, int] = {}
        """Role name → its place in the round; strings take places too."""
        self._roles: dict[str, Role] = {}
        for key in ("round", "reserved_roles"):
            for item in _entries(meta_template, key):
                self._add(key, item)

    def _add(self, key: str, item: str | Role) -> None:
        if isinstance(item, dict):
            name = _name(item)
            if name in self._roles:
                raise TemplateError(
                    f'role "{name}" is defined twice; role names are unique over round and reserved_roles'
                )
            self._roles[name] = item
            if key == "round":
                self.order[name] = len(self.round)
        if key == "round":
            self.round.append(item)

    def __iter__(self) -> Iterator[Role]:
        return iter(self._roles.values())

    def __contains__(self, name: object) -> bool:
        return name in self._roles

    def speaker(self, turn: Turn) -> Role:
        """The role that speaks this turn, with the turn's keys laid over it.

        Raises TemplateError when neither the role nor the fallback is known.
        """
        name = self.name_of(turn)
        if name not in self._roles:
            raise no_role(turn)
        return {**self._roles[name], **turn}

    def name_of(self, turn: Turn) -> Any:
        """The turn's own role when it is defined, else its fallback, defined or not."""
        name = _hashable(turn.get("role"))
        return name if name in self._roles else _hashable(turn.get("fallback_role"))

    def spoken_round(self, turns: list[Turn]) -> list[str | Role]:
        """The whole meta round, each turn's keys laid over the role that speaks it.

        A turn of a reserved role finds no place here and is lost, as in the reference's API parser.
        """
        said: dict[Any, Role] = {}
        for turn in turns:
            name = self.name_of(turn)
            said[name] = {**said.get(name, self._roles.get(name, {})), **turn}
        return [item if isinstance(item, str) else said.get(item["role"], item) for item in self.round]


def no_role(turn: Turn) -> TemplateError:
    """The error for a turn that nobody can speak; names the role and leaves out the text."""
    fallback = turn.get("fallback_role")
    tried = f'role "{turn.get("role")}"' + (f' and fallback_role "{fallback}"' if fallback else " and no fallback_role")
    return TemplateError(f"a turn has {tried}: the meta template defines neither; add the role or give a fallback_role")


def _entries(meta_template: Mapping[str, Any], key: str) -> list[str | Role]:
    entries = meta_template.get(key, [])
    if not isinstance(entries, list):
        raise TemplateError(f"{key} of a meta template is a list")
    for item in entries:
        if not isinstance(item, (str, dict)):
            raise TemplateError(f"{key} of a meta template holds strings and roles, not {type(item).__name__}")
    return entries


def _name(role: Role) -> Any:
    if "role" not in role:
        raise TemplateError("an entry of a meta template has no `role`")
    return _hashable(role["role"])


def _hashable(name: Any) -> Any:
    if isinstance(name, (list, dict)):
        raise TemplateError("a role's name is a string")
    return name
