"""In which order are turns spoken when messages keep their own order? (``turns: natural``)

Each message is one turn, in message order; then the model speaks. Entries of the
round that no message fills are written only when the template gives them words: a
default prompt (``THOUGHTS: "None"``) or a bare string, once in each round, at their
place. Nothing empty is invented. A new round starts as in the reference, where a
role does not come later in the round than the one before; system messages start none.

For alternating conversations this is what the reference's parser does.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from gateway.core.dialogue import Dialogue
from gateway.template.messages import RoleMapping, Speakers
from gateway.template.spec.template import RoleSpec, TemplateSpec

MESSAGE_ROLES = ("user", "assistant")

Turn = tuple[RoleMapping | None, RoleSpec | str, int]
"""(speaker, entry of the template, message number); without a speaker the template's own words, and their place."""


class NaturalOrder:
    """The order of turns for one template."""

    def __init__(self, spec: TemplateSpec, speakers: Speakers) -> None:
        self._speakers = speakers
        generating = spec.generating
        if generating is None:
            raise ValueError("a meta template without a generating role passed the checks")
        self._size = len(spec.round)
        self._generate_at = spec.round.index(generating)
        said_by_messages = [speakers[role].place for role in MESSAGE_ROLES if role in speakers]
        self._own_words: tuple[tuple[int, RoleSpec | str], ...] = tuple(
            (place, entry)
            for place, entry in enumerate(spec.round)
            if place not in said_by_messages and (isinstance(entry, str) or entry.prompt is not None)
        )
        """Entries that speak without a message, by place."""
        self.speaks_for_itself = bool(self._own_words)
        """Has the template words that no message fills? Without any, turns are the messages as they stand."""
        self._between_places: dict[tuple[int, int], list[Turn]] = {}

    def turns(self, dialogue: Dialogue) -> Iterator[Turn]:
        """Every turn before the model's own. Raises RoleNotSupported."""
        place = -1
        heard: set[int] = set()  # places a system message has filled in the present round
        for number, message in enumerate(dialogue.messages):
            speaker = self._speakers.get(message.role)
            if speaker is None:
                raise self._speakers.refuse(message.role, number)
            there = speaker.place
            if there is not None and speaker.system:
                heard.add(there)
            elif there is not None:
                yield from self._between(place, there, heard)
                place = there
            yield speaker, speaker.role, number
        if not dialogue.continue_final:
            yield from self._between(place, self._generate_at, heard)

    def _between(self, place: int, there: int, heard: set[int]) -> list[Turn]:
        """The template's own words after ``place`` and before ``there``, over the round's end if need be."""
        if not heard:
            return self._unheard(place, there)
        wraps = there <= place
        turns = self._own(place + 1, self._size if wraps else there, heard)
        if not wraps:
            return turns
        heard.clear()
        return turns + self._own(0, there)

    def _unheard(self, place: int, there: int) -> list[Turn]:
        """The same where no system message has filled a place, as between most turns: found once."""
        turns = self._between_places.get((place, there))
        if turns is None:
            wraps = there <= place
            turns = self._own(place + 1, self._size if wraps else there) + (self._own(0, there) if wraps else [])
            self._between_places[place, there] = turns
        return turns

    def _own(self, start: int, stop: int, heard: Set[int] = frozenset()) -> list[Turn]:
        return [
            (None, entry, place) for place, entry in self._own_words if start <= place < stop and place not in heard
        ]
