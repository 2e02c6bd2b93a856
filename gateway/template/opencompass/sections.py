"""How is a PromptList walked, section by section?

Markers open and close sections; the walk says what is met in between, and both
parsers listen (``specs/opencompass.md`` 4.3, 5.2). Two of the reference's
crashes are mended as its section 12 recommends: a list without any marker is one
round, and the end section, whose first marker the datasets write as an end, opens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.core.errors import TemplateError
from gateway.template.opencompass.prompt_list import is_marker
from gateway.template.roles import Turn

SECTIONS = ("begin", "round", "end", "ice")
DIALOGUE_SECTIONS = frozenset({"round", "ice"})
LONE_SECTIONS = frozenset({"begin", "end"})


@dataclass(frozen=True, slots=True)
class Loose:
    """A string item; it stands outside every turn."""

    text: str
    item: int
    """Position in the PromptList."""


@dataclass(frozen=True, slots=True)
class Lone:
    """A turn in ``begin`` or ``end``, spoken by itself."""

    turn: Turn
    item: int


@dataclass(frozen=True, slots=True)
class Closed:
    """A ``round`` or ``ice`` section has ended; its turns come in order."""

    section: str
    turns: tuple[tuple[int, Turn], ...]
    """Position in the PromptList, and the turn."""


def walk(items: Sequence[Any]) -> Iterator[Loose | Lone | Closed]:
    """Tell what a PromptList holds, in order. Raises TemplateError for sections that do not nest."""
    if _is_flat(items):
        yield from (Loose(item, number) for number, item in enumerate(items) if isinstance(item, str))
        yield Closed("round", _turns(items, 0, len(items)))
        return
    open_sections: list[tuple[Any, int]] = []
    for number, item in enumerate(items):
        if isinstance(item, str):
            yield Loose(item, number)
        elif not isinstance(item, dict):
            raise TemplateError(f"a PromptList holds strings and dicts, not {type(item).__name__}")
        elif not is_marker(item):
            if not open_sections:
                raise TemplateError(f"item {number} is a turn outside every section; open a section before it")
            if open_sections[-1][0] in LONE_SECTIONS:
                yield Lone(item, number)
        elif _opens(item, open_sections):
            open_sections.append((_section(item), number + 1))
        else:
            section, start = _close(item, open_sections)
            if section in DIALOGUE_SECTIONS:
                yield Closed(section, _turns(items, start, number))


def _is_flat(items: Sequence[Any]) -> bool:
    dicts = [item for item in items if isinstance(item, dict)]
    return bool(dicts) and not any(is_marker(item) for item in dicts)


def _opens(marker: Turn, open_sections: list[tuple[Any, int]]) -> bool:
    if marker["pos"] not in ("begin", "end"):
        raise TemplateError(f'a section marker has pos "begin" or "end", not {marker["pos"]!r}')
    return marker["pos"] == "begin" or (marker["section"] == "end" and not open_sections)


def _section(marker: Turn) -> Any:
    if marker["section"] not in SECTIONS:
        raise TemplateError(f"a section is one of {', '.join(SECTIONS)}, not {marker['section']!r}")
    return marker["section"]


def _close(marker: Turn, open_sections: list[tuple[Any, int]]) -> tuple[Any, int]:
    if not open_sections:
        raise TemplateError(f"section {marker['section']!r} ends before it began")
    section, start = open_sections.pop()
    if section != marker["section"]:
        raise TemplateError(f"section {section!r} is closed by the end of {marker['section']!r}")
    return section, start


def _turns(items: Sequence[Any], start: int, stop: int) -> tuple[tuple[int, Turn], ...]:
    turns: list[tuple[int, Turn]] = []
    for number in range(start, stop):
        item = items[number]
        if isinstance(item, str):
            continue
        if not isinstance(item, dict) or "role" not in item:
            raise TemplateError(f"item {number} of a round has no `role`")
        turns.append((number, item))
    return tuple(turns)
