"""The order of turns with ``turns: natural``: the messages keep their order, and texts of the template are added.

Each message is one turn. Then the model answers; in a complete conversation the last round ends. The round may have
entries without a message. A bare string, or a role with a default prompt (``THOUGHTS: "None"``), is then written once
in each round, at the position of the entry. No empty turn is added. As in OpenCompass, a message starts a new round if
the message's role is not after the previous role in the round. System messages never start a round.

For alternating conversations, OpenCompass's parser gives the same order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from metatemplate.templates.roles import RoleMap, RoleMapping, mapping_of
from metatemplate.templates.spec import RoleSpec, TemplateSpec
from metatemplate.values.dialogue import Dialogue

OrderedTurn = tuple[RoleMapping | None, RoleSpec | str, int]
"""(role mapping, entry of the template, message number). For an entry without a message: None, the entry, and -1."""


class NaturalOrder:
    """Puts the turns of a dialogue in the order that one template requires."""

    def __init__(self, spec: TemplateSpec, roles: RoleMap) -> None:
        self._roles = roles
        self._generating_place = None if spec.generating is None else spec.round.index(spec.generating)
        filled_places = [roles[role].place for role in ("user", "assistant") if role in roles]
        self._own_entries = [
            (place, entry)
            for place, entry in enumerate(spec.round)
            if place not in filled_places and (isinstance(entry, str) or entry.prompt is not None)
        ]
        """(index in the round, entry) of each entry that is written without a message."""

    def turns(self, dialogue: Dialogue) -> Iterator[OrderedTurn]:
        """Yield all turns before the model's answer. Raises UnknownRole for a role that cannot be written."""
        last_place = -1
        system_places: set[int] = set()  # places that system messages have filled in this round
        for number, message in enumerate(dialogue.messages):
            mapping = mapping_of(self._roles, message, number)
            if mapping.place is not None and mapping.is_system:
                system_places.add(mapping.place)
            elif mapping.place is not None:
                if self._own_entries:
                    yield from self._between(last_place, mapping.place, system_places)
                last_place = mapping.place
            yield mapping, mapping.role, number
        if dialogue.options.whole:
            yield from self._own(last_place + 1, None, system_places)
        elif not dialogue.options.continue_final and self._generating_place is not None:
            yield from self._between(last_place, self._generating_place, system_places)

    def _between(self, place: int, next_place: int, filled: set[int]) -> Iterator[OrderedTurn]:
        """Yield the entries without a message between two places in the round.

        If ``next_place`` is not after ``place``, a new round starts between the two places.
        """
        if next_place > place:
            yield from self._own(place + 1, next_place, filled)
        else:
            yield from self._own(place + 1, None, filled)
            filled.clear()
            yield from self._own(0, next_place, ())

    def _own(self, start: int, stop: int | None, filled: Collection[int]) -> Iterator[OrderedTurn]:
        for place, entry in self._own_entries:
            if place >= start and (stop is None or place < stop) and place not in filled:
                yield None, entry, -1
