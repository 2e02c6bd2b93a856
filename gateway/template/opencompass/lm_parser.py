"""The LM parser: the text that OpenCompass makes of a prompt list for a model that takes text.

The rules are ``docs/spec/opencompass.md`` 4. The conformance cases run on this parser.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.template.opencompass.prompt_list import Entry, sections_of, split_rounds
from gateway.template.opencompass.role_table import Role, RoleTable, Turn

Mode = Literal["gen", "ppl"]
"""``gen`` stops where the model answers, ``ppl`` writes every turn and the meta ``end``."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the prompt and the item that it came from."""

    text: str
    kind: Literal["scaffold", "content", "generate"]
    role: str = ""
    item: int | None = None
    """Position in the prompt list; None: the text is the meta template's."""


class LMParser:
    """Turns prompt lists into text."""

    def __init__(self, meta_template: Mapping[str, Any]) -> None:
        """``meta_template``: see ``RoleTable``; with the texts ``begin`` and ``end``."""
        self._begin = Piece(meta_template["begin"], "scaffold")
        self._end = Piece(meta_template["end"], "scaffold")
        self._table = RoleTable(meta_template)

    def pieces(self, items: Sequence[Any], mode: Mode = "gen") -> list[Piece]:
        """The prompt in pieces, in order, without empty ones. Raises TemplateError for a turn without a usable role."""
        pieces = [self._begin]
        for piece in self._sections(items, mode):
            pieces.append(piece)
            if piece.kind == "generate":
                break
        else:
            pieces.append(self._end)
        return [piece for piece in pieces if piece.text or piece.kind == "generate"]

    def _sections(self, items: Sequence[Any], mode: Mode) -> Iterator[Piece]:
        for section, entries in sections_of(items):
            if section == "text":
                yield from (Piece(text, "content", item=item) for item, text in entries)
            elif section in ("begin", "end"):
                yield from (piece for item, turn in entries for piece in self._turn(item, turn))
            else:
                yield from self._rounds(entries, generates=mode == "gen" and section == "round")

    def _rounds(self, entries: Sequence[Entry], *, generates: bool) -> Iterator[Piece]:
        rounds = split_rounds(entries, lambda turn: self._table.places.get(turn["role"]))
        for number, turns in enumerate(rounds):
            yield from self._round(deque(turns), generates=generates and number == len(rounds) - 1)

    def _round(self, turns: deque[tuple[int, Turn, int | None]], *, generates: bool) -> Iterator[Piece]:
        """One whole round. A turn whose role is outside the round stands behind the turn before it.

        The reference crashes on such a turn (section 12).
        """
        yield from self._turns_without_place(turns)
        for place, entry in enumerate(self._table.round):
            if isinstance(entry, str):
                yield Piece(entry, "scaffold")
                continue
            item, turn = turns.popleft()[:2] if turns and turns[0][2] == place else (None, {})
            role = {**entry, **turn}
            if generates and role.get("generate"):
                yield Piece(role.get("begin", ""), "generate", role["role"])
                return
            yield from _role_pieces(role, turn, item)
            yield from self._turns_without_place(turns)

    def _turns_without_place(self, turns: deque[tuple[int, Turn, int | None]]) -> Iterator[Piece]:
        while turns and turns[0][2] is None:
            yield from self._turn(*turns.popleft()[:2])

    def _turn(self, item: int, turn: Turn) -> Iterator[Piece]:
        return _role_pieces(self._table.role_of(turn), turn, item)


def _role_pieces(role: Role, turn: Turn, item: int | None) -> Iterator[Piece]:
    """begin + prompt + end; the prompt is the role's default prompt if the turn has none."""
    name = role["role"]
    yield Piece(role.get("begin", ""), "scaffold", name, item)
    if "prompt" in turn:
        yield Piece(turn["prompt"], "content", name, item)
    else:
        yield Piece(role.get("prompt", ""), "scaffold", name)
    yield Piece(role.get("end", ""), "scaffold", name, item)
