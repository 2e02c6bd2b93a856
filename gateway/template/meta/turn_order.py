"""The order of turns with ``turns: natural``: messages keep their order, and the template's own texts join them.

Each message is one turn, then the model answers. An entry of the round that no message fills is written once in each
round, at its place, if the template gives it a text: a default prompt (``THOUGHTS: "None"``) or a bare string. No empty
turn is added. As in the reference, a new round starts where a role does not come later in the round than the one
before; system messages start none.

For alternating conversations this is the order of the reference's parser.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gateway.core.dialogue import Dialogue
from gateway.template.roles import RoleMap, RoleMapping, mapping_of
from gateway.template.spec import RoleSpec, TemplateSpec

Turn = tuple[RoleMapping | None, RoleSpec | str, int]
"""(role mapping, entry of the template, message number). Without a mapping the entry stands by itself (number -1)."""


class NaturalOrder:
    """The order of turns of one template."""

    def __init__(self, spec: TemplateSpec, generating: RoleSpec, roles: RoleMap) -> None:
        self._roles = roles
        self._generating_place = spec.round.index(generating)
        filled_places = [roles[role].place for role in ("user", "assistant") if role in roles]
        self._own_entries = [
            (place, entry)
            for place, entry in enumerate(spec.round)
            if place not in filled_places and (isinstance(entry, str) or entry.prompt is not None)
        ]
        """Entries of the round that are written without a message, by place."""

    def turns(self, dialogue: Dialogue) -> Iterator[Turn]:
        """Every turn before the model's answer. Raises RoleNotSupported."""
        last_place = -1
        system_places: set[int] = set()  # filled by system messages in the present round
        for number, message in enumerate(dialogue.messages):
            mapping = mapping_of(self._roles, message.role, number)
            if mapping.place is not None and mapping.is_system:
                system_places.add(mapping.place)
            elif mapping.place is not None:
                if self._own_entries:
                    yield from self._between(last_place, mapping.place, system_places)
                last_place = mapping.place
            yield mapping, mapping.role, number
        if not dialogue.options.continue_final:
            yield from self._between(last_place, self._generating_place, system_places)

    def _between(self, place: int, next_place: int, filled: set[int]) -> Iterator[Turn]:
        """The template's own entries between two places, across the end of the round if the next one is not later."""
        if next_place > place:
            yield from self._own(place + 1, next_place, filled)
        else:
            yield from self._own(place + 1, None, filled)
            filled.clear()
            yield from self._own(0, next_place, ())

    def _own(self, start: int, stop: int | None, filled: Collection[int]) -> Iterator[Turn]:
        for place, entry in self._own_entries:
            if place >= start and (stop is None or place < stop) and place not in filled:
                yield None, entry, -1
