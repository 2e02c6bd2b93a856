"""How do values get into the slots, safely? One pass over the template, so that no value is ever searched.

The reference searches the text it has just filled: a value may hold another slot, or the tags that part system from
user text, and move words between roles. Here slots and tags are found in the operator's template alone
(``specs/lazyllm.md`` 4, 5 and 14); other braces stay as they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.template.lazyllm.instructions import USER_BEGINS, USER_ENDS
from gateway.template.lazyllm.marks import SpecialMarks
from gateway.template.lazyllm.request import Turn
from gateway.template.lazyllm.runs import Run, Runs, joined
from gateway.template.lazyllm.slots import SLOT
from gateway.template.lazyllm.tools import PLACE, PREAMBLE

Part = tuple[str, str]
"""(text, slot): a text of the template, or the name of a slot; the other one is empty."""

TOOL_NAMES = "tool_names"
"""The slot that the request's tools fill."""


@dataclass(frozen=True, slots=True)
class Filling:
    """A template, taken apart once."""

    system: tuple[Part, ...]
    preamble: tuple[Part, ...]
    """The explanation of calls that stands behind the system part."""
    user: tuple[Part, ...]

    def filled(self, values: Mapping[str, str], folded: Sequence[Turn] = ()) -> tuple[Runs, Runs]:
        """System and user text with the values in their slots, and the request's system messages in their place."""
        system = _filled(self.system, values)
        return (*system, *folded_runs(folded, joined(system)), *_filled(self.preamble, values)), _filled(
            self.user, values
        )

    @property
    def slots(self) -> tuple[str, ...]:
        """The names, each once, in their order; ``tool_names`` is none of the client's."""
        names = [slot for _, slot in (*self.system, *self.user) if slot and slot != TOOL_NAMES]
        return tuple(dict.fromkeys(names))


def filling_of(template: str, marks: SpecialMarks, *, tools: bool) -> Filling:
    """The instruction template, taken apart. ``tools``: with the explanation of calls in it."""
    system, user = _parts_of(template)
    # The reference appends it to the whole, and loses it with what follows the user text.
    preamble = "\n\n" + PLACE if tools and PLACE not in template else ""
    return Filling(_compiled(system, marks, tools), _compiled(preamble, marks, tools), _compiled(user, marks, tools))


def folded_runs(system: Sequence[Turn], before: str) -> Runs:
    """The request's system messages, as they are, behind the instruction's system part.

    Without an instruction the text stands where the instruction would, byte for byte as the reference writes one.
    """
    if not system:
        return ()
    found: list[Run] = [] if not before or before.endswith("\n") else [Run("\n")]
    for place, turn in enumerate(system):
        if place:
            found.append(Run("\n"))
        found.append(Run(turn.item["content"], f"system:{turn.number}", True))
    return (*found, Run("\n\n"))


def _parts_of(template: str) -> tuple[str, str]:
    if USER_BEGINS not in template:
        return template, ""
    system, _, rest = template.partition(USER_BEGINS)
    return system, rest.rpartition(USER_ENDS)[0]


def _compiled(text: str, marks: SpecialMarks, tools: bool) -> tuple[Part, ...]:
    text = text.replace(PLACE, PREAMBLE if tools else "")
    for name, token in marks.tool_tokens:
        if token:
            text = text.replace(f"{{{name}}}", token)
    if not tools:
        text = text.replace(f"{{{TOOL_NAMES}}}", "")
    return tuple(_split(text))


def _split(text: str) -> Iterator[Part]:
    for place, piece in enumerate(SLOT.split(text)):
        if place % 2:
            yield "", piece
        elif piece:
            yield piece, ""


def _filled(parts: tuple[Part, ...], values: Mapping[str, str]) -> Runs:
    return tuple([Run(values[slot], f"slot:{slot}", True) if slot else Run(text) for text, slot in parts])
