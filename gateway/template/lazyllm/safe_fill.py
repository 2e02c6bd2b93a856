"""Safe filling: slots and tags are found in the operator's template only, and filled in one pass.

LazyLLM searches the text that it has just filled: a value may hold another slot, or the tags that separate system from
user text, and so move words between roles (``docs/spec/lazyllm.md`` 4, 5, 14). Here a value is never searched, and
other braces stay as they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.core.prompt import Segment, Segments
from gateway.template.lazyllm.assembly import Turn
from gateway.template.lazyllm.instruction import PREAMBLE_PLACE, SLOT, TOOL_NAMES, USER_BEGINS, USER_ENDS, with_preamble
from gateway.template.lazyllm.segments import template_text, text_of
from gateway.template.lazyllm.tokens import SpecialTokens

Part = tuple[str, str]
"""(text, slot): a text of the template, or the name of a slot; the other one is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeInstruction:
    """An instruction template, split into texts and slots."""

    system: tuple[Part, ...]
    preamble: tuple[Part, ...]
    """The explanation of calls behind the system part."""
    user: tuple[Part, ...]

    @classmethod
    def compiled(cls, instruction: str, tokens: SpecialTokens, *, tools: bool) -> SafeInstruction:
        """``tools``: with the explanation of calls."""
        system, tag, rest = instruction.partition(USER_BEGINS)
        user = rest.rpartition(USER_ENDS)[0] if tag else ""
        # LazyLLM appends the preamble to the whole, and loses it with all that follows the user part.
        preamble = "\n\n" + PREAMBLE_PLACE if tools and PREAMBLE_PLACE not in instruction else ""
        system, preamble, user = (with_preamble(text, tokens, preamble=tools) for text in (system, preamble, user))
        if not tools:
            system, user = (text.replace(f"{{{TOOL_NAMES}}}", "") for text in (system, user))
        return cls(system=tuple(_parts(system)), preamble=tuple(_parts(preamble)), user=tuple(_parts(user)))

    def fill(self, values: Mapping[str, Segment], folded: Sequence[Turn]) -> tuple[Segments, Segments]:
        """System and user part. ``folded``: the request's system messages, behind the instruction's system part."""
        system = _filled(self.system, values)
        system = (*system, *folded_segments(folded, text_of(system)), *_filled(self.preamble, values))
        return system, _filled(self.user, values)

    @property
    def slots(self) -> tuple[str, ...]:
        """The names, each once, in order, without the slot of the tools' names."""
        names = [slot for _, slot in (*self.system, *self.user) if slot and slot != TOOL_NAMES]
        return tuple(dict.fromkeys(names))


def folded_segments(system: Sequence[Turn], before: str) -> Iterator[Segment]:
    """The request's system messages, one per line, behind the text ``before``.

    Without an instruction they stand where the instruction would, byte for byte as LazyLLM writes one.
    """
    if system and before and not before.endswith("\n"):
        yield template_text("\n")
    for place, turn in enumerate(system):
        if place:
            yield template_text("\n")
        yield Segment(turn.content, "system", turn.origin, False)
    if system:
        yield template_text("\n\n")


def _parts(text: str) -> Iterator[Part]:
    for place, piece in enumerate(SLOT.split(text)):
        if place % 2:
            yield "", piece
        elif piece:
            yield piece, ""


def _filled(parts: tuple[Part, ...], values: Mapping[str, Segment]) -> Segments:
    return tuple([values[slot] if slot else template_text(text) for text, slot in parts])
