"""Prompt lists: the form in which OpenCompass hands a conversation to a parser (``docs/spec/opencompass.md`` 1, 4.3).

A prompt list holds strings, turns (dicts with ``role`` and ``prompt``) and section markers (dicts with ``section`` and
``pos``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gateway.core.dialogue import Message
from gateway.template.opencompass.role_table import Turn
from gateway.template.roles import FALLBACKS, SYSTEM, RoleMap, mapping_of

MARKER_KEYS = frozenset({"section", "pos"})

Entry = tuple[int, Any]
"""(position in the prompt list, turn or string)."""


def sections_of(items: Sequence[Any]) -> Iterator[tuple[str, list[Entry]]]:
    """Split a prompt list whose sections nest into (section, entries), in order.

    ``round`` and ``ice`` come complete when they close, a turn of ``begin`` or ``end`` comes alone, and so does a
    string, with the section ``text``, inside of other sections too.
    """
    open_sections: list[tuple[str, list[Entry]]] = []
    for position, item in enumerate(items):
        if isinstance(item, str):
            yield "text", [(position, item)]
        elif item.keys() == MARKER_KEYS:
            if item["pos"] == "begin":
                open_sections.append((item["section"], []))
                continue
            section, entries = open_sections.pop()
            if section in ("round", "ice"):
                yield section, entries
        elif open_sections[-1][0] in ("begin", "end"):
            yield open_sections[-1][0], [(position, item)]
        else:
            open_sections[-1][1].append((position, item))


def split_rounds(
    turns: Sequence[Entry], place_of: Callable[[Turn], int | None]
) -> list[list[tuple[int, Turn, int | None]]]:
    """The turns of a section by rounds, each with its place in the meta template's round.

    A round starts with a turn that does not come later in the round than the last one; turns without a place start
    none.
    """
    rounds: list[list[tuple[int, Turn, int | None]]] = [[]]
    last = -1
    for position, turn in turns:
        place = place_of(turn)
        if place is not None:
            if place <= last:
                rounds.append([])
            last = place
        rounds[-1].append((position, turn, place))
    return rounds


def prompt_list(
    messages: Sequence[Message], texts: Sequence[str], names: Mapping[str, str], roles: RoleMap
) -> tuple[list[Any], list[int]]:
    """The dialogue as a dataset writes it, and for each item the number of its message (-1: none).

    Leading system messages are the ``begin`` section, all others one ``round``. Raises RoleNotSupported.
    """
    items: list[Any] = []
    numbers: list[int] = []

    def add(item: Mapping[str, Any], number: int = -1) -> None:
        items.append(item)
        numbers.append(number)

    section = ""
    for number, (message, text) in enumerate(zip(messages, texts, strict=True)):
        mapping_of(roles, message.role, number)
        name = names[message.role]
        wanted = "begin" if name == SYSTEM and section != "round" else "round"
        if wanted != section:
            if section:
                add({"section": section, "pos": "end"})
            add({"section": wanted, "pos": "begin"})
            section = wanted
        fallback = {"fallback_role": FALLBACKS[name]} if name in FALLBACKS else {}
        add({"role": name, "prompt": text, **fallback}, number)
    if section != "round":
        if section:
            add({"section": section, "pos": "end"})
        add({"section": "round", "pos": "begin"})
    add({"section": "round", "pos": "end"})
    return items, numbers
