"""Fills slots in one pass over the operator's instruction template, so that slot values cannot contain slots or tags.

LazyLLM searches a text that already contains slot values. If a value contains a slot, or the tags between system and
user text, words get into another role (``docs/spec/lazyllm.md`` 4, 5, 14). This module never searches a value, and
leaves other braces unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from metatemplate.prompters.assembly import Turn
from metatemplate.prompters.instruction import PREAMBLE_PLACE, SLOT, TOOL_NAMES, USER_BEGINS, USER_ENDS, with_preamble
from metatemplate.prompters.segments import template_text, text_of
from metatemplate.templates.spec import SpecialTokens
from metatemplate.values.prompt import Segment, Segments

TextOrSlot = tuple[str, str]
"""(text, slot): either a text of the template or the name of a slot. The other item is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeInstruction:
    """An instruction template that is split into texts and slots."""

    system: tuple[TextOrSlot, ...]
    preamble: tuple[TextOrSlot, ...]
    """The explanation of tool calls, which follows the system part."""
    user: tuple[TextOrSlot, ...]

    @classmethod
    def compiled(
        cls, instruction: str, tokens: SpecialTokens, *, tools: bool, preamble: bool = False
    ) -> SafeInstruction:
        """Split an instruction template. ``tools``: True for requests with tools.

        ``preamble``: True adds the explanation of tool calls.
        """
        system, tag, rest = instruction.partition(USER_BEGINS)
        user = rest.rpartition(USER_ENDS)[0] if tag else ""
        # LazyLLM adds the preamble after the user part, and then drops all text after the user part.
        after = "\n\n" + PREAMBLE_PLACE if preamble and PREAMBLE_PLACE not in instruction else ""
        system, after, user = (with_preamble(text, tokens, preamble=preamble) for text in (system, after, user))
        if not tools:
            system, user = (text.replace(f"{{{TOOL_NAMES}}}", "") for text in (system, user))
        return cls(system=tuple(_parts(system)), preamble=tuple(_parts(after)), user=tuple(_parts(user)))

    def fill(self, values: Mapping[str, Segment], folded: Sequence[Turn]) -> tuple[Segments, Segments]:
        """Return the filled system part and user part. ``folded``: system messages to add to the system part."""
        system = _filled(self.system, values)
        system = (*system, *folded_segments(folded, text_of(system)), *_filled(self.preamble, values))
        return system, _filled(self.user, values)

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the slots in order, without duplicates and without the slot for the names of the tools."""
        names = [slot for _, slot in (*self.system, *self.user) if slot and slot != TOOL_NAMES]
        return tuple(dict.fromkeys(names))


def folded_segments(system: Sequence[Turn], before: str) -> Iterator[Segment]:
    """Yield the request's system messages, one per line, after the text ``before``.

    Without an instruction, the system messages are written exactly as LazyLLM would write an instruction.
    """
    if system and before and not before.endswith("\n"):
        yield template_text("\n")
    for place, turn in enumerate(system):
        if place:
            yield template_text("\n")
        yield Segment(turn.content, "system", turn.origin, False)
    if system:
        yield template_text("\n\n")


def _parts(text: str) -> Iterator[TextOrSlot]:
    for place, piece in enumerate(SLOT.split(text)):
        if place % 2:
            yield "", piece
        elif piece:
            yield piece, ""


def _filled(parts: tuple[TextOrSlot, ...], values: Mapping[str, Segment]) -> Segments:
    return tuple([values[slot] if slot else template_text(text) for text, slot in parts])
