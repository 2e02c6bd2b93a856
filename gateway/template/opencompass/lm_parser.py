"""What string does OpenCompass make of a PromptList for a string model?

The LM parser of ``specs/opencompass.md`` 4. One walk yields pieces that remember
their item; the string is the pieces joined, and the request renderer of
``meta_opencompass.py`` reads the same pieces as segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.core.errors import TemplateError
from gateway.template.opencompass.prompt_list import PromptList, is_marker
from gateway.template.opencompass.sections import Closed, Lone, Loose, walk
from gateway.template.roles import Role, RoleTable, Turn, no_role

MODES = ("gen", "ppl")


@dataclass(frozen=True, slots=True)
class Piece:
    """A bit of the prompt and the item it came from."""

    text: str
    kind: Literal["meta", "loose", "begin", "prompt", "end", "generate"]
    role: str = ""
    item: int | None = None
    """Position in the PromptList; None: the meta template wrote it."""


@dataclass(slots=True)
class _Round:
    """One round: turns by their place in the meta round, and others spoken in between."""

    turns: dict[str, tuple[int, Turn]] = field(default_factory=dict)
    asides: dict[int, list[tuple[int, Turn]]] = field(default_factory=dict)
    """Turns whose role is not in the round, after the place of the turn before them (-1: before all)."""
    place: int = -1


class LMParser:
    """Turns prompts into strings, as a string model's wrapper does; alike in both packages."""

    def __init__(self, meta_template: Mapping[str, Any] | None = None) -> None:
        """Raises TemplateError for a meta template that the reference refuses at once."""
        self._meta = meta_template or {}
        self._table = RoleTable(meta_template) if meta_template else None
        for role in self._table or ():
            for key in ("begin", "end"):
                if isinstance(role.get(key), list):
                    raise TemplateError(
                        f'{key} of role "{role["role"]}" is a list: '
                        "token lists are not supported; write the decoded text"
                    )

    def parse(self, prompt: Any, mode: str = "gen") -> Any:
        """A string stays as it is; a PromptList becomes a string; a plain list or tuple, each of its elements.

        ``mode`` is ``gen`` (stop where the model speaks) or ``ppl`` (everything).
        Raises TemplateError.
        """
        if isinstance(prompt, (list, tuple)) and not isinstance(prompt, PromptList):
            return [self.parse(one, mode) for one in prompt]
        if mode not in MODES:
            raise TemplateError(f"mode is gen or ppl, not {mode!r}")
        if isinstance(prompt, str):
            return prompt
        if isinstance(prompt, PromptList):
            return "".join([piece.text for piece in self.pieces(prompt, mode)])
        raise TemplateError(f"a prompt is a string, a PromptList or a list of them, not {type(prompt).__name__}")

    def pieces(self, items: Sequence[Any], mode: str = "gen") -> list[Piece]:
        """The string of ``parse``, in pieces, in order; empty pieces are left out."""
        if self._table is None:
            return _joined_by_lines(items)
        pieces = [Piece(_text(self._meta.get("begin", ""), "begin"), "meta")]
        for piece in self._walk(self._table, items, mode):
            pieces.append(piece)
            if piece.kind == "generate":
                break
        else:
            pieces.append(Piece(_text(self._meta.get("end", ""), "end"), "meta"))
        return [piece for piece in pieces if piece.text or piece.kind == "generate"]

    def _walk(self, table: RoleTable, items: Sequence[Any], mode: str) -> Iterator[Piece]:
        for met in walk(items):
            match met:
                case Loose(text, item):
                    yield Piece(text, "loose", item=item)
                case Lone(turn, item):
                    yield from _spoken(table.speaker(turn), turn, item)
                case Closed(section, turns):
                    yield from self._rounds(table, turns, stops=mode == "gen" and section == "round")

    def _rounds(self, table: RoleTable, turns: Sequence[tuple[int, Turn]], *, stops: bool) -> Iterator[Piece]:
        if not table.round:
            raise TemplateError("the meta template's round is empty; give it at least one role")
        rounds = _cut(table, turns)
        for number, one in enumerate(rounds):
            yield from _whole_round(table, one, stops=stops and number == len(rounds) - 1)


def _cut(table: RoleTable, turns: Sequence[tuple[int, Turn]]) -> list[_Round]:
    """A new round starts where a role does not come later in the meta round than the one before.

    A role outside the round is a crash in the reference; here it is spoken where it stands,
    by its reserved role or its fallback (section 12), and starts no round.
    """
    rounds = [_Round()]
    for item, turn in turns:
        now = rounds[-1]
        name = turn["role"]
        place = table.order.get(name) if not isinstance(name, (list, dict)) else None
        if place is None:
            if table.name_of(turn) not in table:
                raise no_role(turn)
            now.asides.setdefault(now.place, []).append((item, turn))
            continue
        if place <= now.place:
            now = _Round()
            rounds.append(now)
        now.place = place
        now.turns[name] = (item, turn)
    return rounds


def _whole_round(table: RoleTable, one: _Round, *, stops: bool) -> Iterator[Piece]:
    yield from _asides(table, one, -1)
    for place, entry in enumerate(table.round):
        if isinstance(entry, str):
            yield Piece(entry, "meta")
            continue
        item, turn = one.turns.get(entry["role"], (None, {}))
        role = {**entry, **turn}
        if stops and role.get("generate", False):
            yield Piece(_text(role.get("begin", ""), "begin"), "generate", _named(role))
            return
        yield from _spoken(role, turn, item)
        yield from _asides(table, one, place)


def _asides(table: RoleTable, one: _Round, place: int) -> Iterator[Piece]:
    for item, turn in one.asides.get(place, ()):
        yield from _spoken(table.speaker(turn), turn, item)


def _spoken(role: Role, turn: Turn, item: int | None) -> Iterator[Piece]:
    """begin + prompt + end, missing parts empty; the prompt is the meta template's if the turn has none."""
    name = _named(role)
    yield Piece(_text(role.get("begin", ""), "begin"), "begin", name, item)
    yield Piece(_text(role.get("prompt", ""), "prompt"), "prompt", name, item if "prompt" in turn else None)
    yield Piece(_text(role.get("end", ""), "end"), "end", name, item)


def _named(role: Role) -> str:
    return str(role.get("role", ""))


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TemplateError(f"{what} must be text for a string model, not {type(value).__name__}")
    return value


def _joined_by_lines(items: Sequence[Any]) -> list[Piece]:
    """Without a meta template: texts joined by line breaks.

    The break is armed after every item, an empty one too, so an empty first item leaves one in front.
    """
    pieces: list[Piece] = []
    armed = False
    for number, item in enumerate(items):
        if isinstance(item, dict) and is_marker(item):
            continue
        prompt = item if isinstance(item, str) else _prompt_of(item)
        if prompt:
            if armed:
                pieces.append(Piece("\n", "meta"))
            pieces.append(Piece(_text(prompt, "prompt"), "loose", item=number))
        armed = True
    return pieces


def _prompt_of(item: Any) -> Any:
    if not isinstance(item, dict):
        raise TemplateError(f"a PromptList holds strings and dicts, not {type(item).__name__}")
    return item.get("prompt", "")
