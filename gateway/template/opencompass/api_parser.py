"""The API parser: the messages that OpenCompass makes of a prompt list for a model that takes messages.

The rules are ``docs/spec/opencompass.md`` 5. ``generate`` counts in rounds only: in ``begin`` the reference crashes on
it (section 12).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.template.opencompass.lm_parser import Mode
from gateway.template.opencompass.prompt_list import Entry, sections_of, split_rounds
from gateway.template.opencompass.role_table import Role, RoleTable, Turn, no_role

ApiMessage = tuple[tuple[int, ...], dict[str, Any]]
"""(positions in the prompt list, ``{"role": api_role, "prompt": text}``)."""


class APIParser:
    """Turns prompt lists into messages."""

    def __init__(self, meta_template: Mapping[str, Any]) -> None:
        """``meta_template``: see ``RoleTable``; every role has ``api_role``, and the round holds roles only."""
        self._table = RoleTable(meta_template)

    def messages(self, items: Sequence[Any], mode: Mode = "gen") -> Iterator[ApiMessage]:
        """The messages, neighbours of one role not yet merged. Raises TemplateError for a turn without a role."""
        for section, entries in sections_of(items):
            if section in ("begin", "end"):
                yield from (((item,), self._message(self._table.role_of(turn))) for item, turn in entries)
            elif section != "text":
                for message in self._rounds(entries, generates=mode == "gen" and section == "round"):
                    if message is None:
                        return
                    yield message

    def _rounds(self, entries: Sequence[Entry], *, generates: bool) -> Iterator[ApiMessage | None]:
        """The messages of one section; None where the model answers."""
        rounds = split_rounds(entries, self._place)
        for number, turns in enumerate(rounds):
            items = {self._table.name_of(turn): item for item, turn, _ in turns}
            filled = self._table.filled_round([turn for _, turn, _ in turns])
            for name, role in zip(self._table.places, filled, strict=True):
                if generates and number == len(rounds) - 1 and role.get("generate"):
                    yield None
                    return
                yield (items[name],) if name in items else (), self._message(role)

    def _place(self, turn: Turn) -> int:
        """The place of the turn's role in the round, or of its fallback."""
        places = self._table.places
        place = places.get(turn["role"], places.get(turn.get("fallback_role", "")))
        if place is None:
            raise no_role(turn)
        return place

    def _message(self, role: Role) -> dict[str, Any]:
        return {"role": role["api_role"], "prompt": self.prompt(role)}

    def prompt(self, role: Role) -> Any:
        """The message's content."""
        return f"{role.get('begin', '')}{role.get('prompt', '')}{role.get('end', '')}"
