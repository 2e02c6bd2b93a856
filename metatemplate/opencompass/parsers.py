"""OpenCompass's parsers, which turn a prompt list into a text or into messages.

A prompt list is OpenCompass's form of a conversation: a list of strings, turns (dicts with ``role`` and ``prompt``) and
section markers (dicts with ``section`` and ``pos``). ``docs/spec/opencompass.md`` 1, 4 and 5 have the rules. The
conformance cases test these parsers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from metatemplate.datasets.prompt_list import MARKER_KEYS
from metatemplate.errors import TemplateFailure

ParserMode = Literal["gen", "ppl"]
"""With ``gen``, the text ends where the model answers. With ``ppl``, the text has every turn and the meta ``end``."""
TurnMapping = Mapping[str, Any]
Role = dict[str, Any]
Entry = tuple[int, Any]
"""(position in the prompt list, turn or string)."""
Round = list[tuple[int, TurnMapping, int | None]]
"""(position in the prompt list, turn, place in the meta template's round) of each turn."""
ApiMessage = tuple[tuple[int, ...], dict[str, Any]]
"""(positions in the prompt list, ``{"role": api_role, "prompt": text}``)."""


@dataclass(frozen=True, slots=True)
class ParsedPiece:
    """A piece of the prompt, and the position of the item in the prompt list from which the piece is made."""

    text: str
    kind: Literal["scaffold", "content", "generate"]
    role: str = ""
    item: int | None = None
    """The position of the item in the prompt list; None if the text comes from the meta template."""


def sections_of(items: Sequence[Any]) -> Iterator[tuple[str, list[Entry]]]:
    """Split a prompt list with nested sections into pairs (section, entries), in order.

    A section ``round`` or ``ice`` yields one pair with all its turns. In ``begin`` and ``end``, each turn yields a
    pair. Each string yields a pair with the section name ``text``, also if the string is inside another section.
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


class _Parser:
    """The roles of a meta template by name, and the order of the roles in the round."""

    def __init__(self, meta_template: Mapping[str, Any]) -> None:
        """Create the parser. ``meta_template`` has the lists ``round`` and ``reserved_roles``, with unique names."""
        self._entries: list[str | Role] = meta_template["round"]
        roles = [entry for entry in self._entries if isinstance(entry, dict)]
        self._places: dict[str, int] = {role["role"]: self._entries.index(role) for role in roles}
        """Role name → index in the round. Bare texts in the round are counted too."""
        self._roles: dict[str, Role] = {role["role"]: role for role in (*roles, *meta_template["reserved_roles"])}

    def _name_of(self, turn: TurnMapping) -> Any:
        """Return the name of the turn's role; if the role is not defined, return the turn's ``fallback_role``."""
        name = turn["role"]
        return name if name in self._roles else turn.get("fallback_role")

    def _role_of(self, turn: TurnMapping) -> Role:
        """Return the role of this turn. The turn's keys override the keys of the role. Raises UndefinedRole."""
        name = self._name_of(turn)
        if name not in self._roles:
            raise UndefinedRole(turn)
        return {**self._roles[name], **turn}

    def _place(self, turn: TurnMapping) -> int | None:
        """Return the index of the turn's role in the round; None for a role that is not in the round."""
        return self._places.get(turn["role"])

    def _rounds(self, section: str, turns: Sequence[Entry], mode: ParserMode) -> Iterator[tuple[Round, bool]]:
        """Split the turns of a section into rounds. Yield each round, and whether the model's answer ends it.

        A turn starts a new round if the turn's role is not after the previous role in the round. A role that is not in
        the round never starts a new round.
        """
        rounds: list[Round] = [[]]
        last = -1
        for position, turn in turns:
            place = self._place(turn)
            if place is not None:
                if place <= last:
                    rounds.append([])
                last = place
            rounds[-1].append((position, turn, place))
        yield from ((one, False) for one in rounds[:-1])
        yield rounds[-1], mode == "gen" and section == "round"


class LMParser(_Parser):
    """Turns prompt lists into text."""

    def __init__(self, meta_template: Mapping[str, Any]) -> None:
        """Create the parser. ``meta_template`` has the keys of ``_Parser``, and the texts ``begin`` and ``end``."""
        super().__init__(meta_template)
        self._begin = ParsedPiece(meta_template["begin"], "scaffold")
        self._end = ParsedPiece(meta_template["end"], "scaffold")

    def pieces(self, items: Sequence[Any], mode: ParserMode = "gen") -> list[ParsedPiece]:
        """Return the pieces of the prompt, without empty texts. Raises UndefinedRole for a role that is not defined."""
        pieces = [self._begin]
        for piece in self._sections(items, mode):
            pieces.append(piece)
            if piece.kind == "generate":
                break
        else:
            pieces.append(self._end)
        return [piece for piece in pieces if piece.text or piece.kind == "generate"]

    def _sections(self, items: Sequence[Any], mode: ParserMode) -> Iterator[ParsedPiece]:
        for section, entries in sections_of(items):
            if section == "text":
                yield from (ParsedPiece(text, "content", item=item) for item, text in entries)
            elif section in ("begin", "end"):
                yield from (piece for item, turn in entries for piece in self._turn(item, turn))
            else:
                for turns, generates in self._rounds(section, entries, mode):
                    yield from self._round(deque(turns), generates=generates)

    def _round(self, turns: deque[tuple[int, TurnMapping, int | None]], *, generates: bool) -> Iterator[ParsedPiece]:
        """Yield the pieces of one whole round. A turn of a role outside the round is written after the previous turn.

        OpenCompass crashes on a turn whose role is not in the round (section 12).
        """
        yield from self._turns_without_place(turns)
        for place, entry in enumerate(self._entries):
            if isinstance(entry, str):
                yield ParsedPiece(entry, "scaffold")
                continue
            item, turn = turns.popleft()[:2] if turns and turns[0][2] == place else (None, {})
            role = {**entry, **turn}
            if generates and role.get("generate"):
                yield ParsedPiece(role.get("begin", ""), "generate", role["role"])
                return
            yield from _role_pieces(role, turn, item)
            yield from self._turns_without_place(turns)

    def _turns_without_place(self, turns: deque[tuple[int, TurnMapping, int | None]]) -> Iterator[ParsedPiece]:
        while turns and turns[0][2] is None:
            yield from self._turn(*turns.popleft()[:2])

    def _turn(self, item: int, turn: TurnMapping) -> Iterator[ParsedPiece]:
        return _role_pieces(self._role_of(turn), turn, item)


def _role_pieces(role: Role, turn: TurnMapping, item: int | None) -> Iterator[ParsedPiece]:
    """Yield the begin, the prompt and the end of a turn. A turn without a prompt gets the role's default prompt."""
    name = role["role"]
    yield ParsedPiece(role.get("begin", ""), "scaffold", name, item)
    if "prompt" in turn:
        yield ParsedPiece(turn["prompt"], "content", name, item)
    else:
        yield ParsedPiece(role.get("prompt", ""), "scaffold", name)
    yield ParsedPiece(role.get("end", ""), "scaffold", name, item)


class APIParser(_Parser):
    """Turns prompt lists into messages. Every role has ``api_role``, and the round contains no bare texts.

    ``generate`` has an effect only in rounds. OpenCompass crashes on a ``generate`` in ``begin`` (section 12).
    """

    def messages(self, items: Sequence[Any], mode: ParserMode = "gen") -> Iterator[ApiMessage]:
        """Yield the messages. Adjacent messages of one role are not joined. Raises UndefinedRole."""
        for section, entries in sections_of(items):
            if section in ("begin", "end"):
                yield from (((item,), self._message(self._role_of(turn))) for item, turn in entries)
            elif section != "text":
                for turns, generates in self._rounds(section, entries, mode):
                    for positions, role in self._whole_round(turns):
                        if generates and role.get("generate"):
                            return
                        yield positions, self._message(role)

    def _whole_round(self, turns: Round) -> Iterator[ApiMessage]:
        """Yield every role of the round, also roles without a turn. The keys of a turn override the keys of the role.

        As in OpenCompass, a turn of a reserved role is left out.
        """
        filled: dict[Any, ApiMessage] = {}
        for position, turn, _ in turns:
            name = self._name_of(turn)
            _, role = filled.get(name, ((), self._roles.get(name, {})))
            filled[name] = (position,), {**role, **turn}
        yield from (filled.get(role["role"], ((), role)) for role in self._entries if isinstance(role, dict))

    def _place(self, turn: TurnMapping) -> int:
        """Return the index in the round of the turn's role, or of the fallback role. Raises UndefinedRole."""
        place = self._places.get(turn["role"], self._places.get(turn.get("fallback_role", "")))
        if place is None:
            raise UndefinedRole(turn)
        return place

    def _message(self, role: Role) -> dict[str, Any]:
        return {"role": role["api_role"], "prompt": self.prompt(role)}

    def prompt(self, role: Role) -> Any:
        """Return the message's content. Content parts (``prompt_mm``, AISBench) are not changed."""
        if "prompt_mm" in role:
            return role["prompt_mm"]
        return f"{role.get('begin', '')}{role.get('prompt', '')}{role.get('end', '')}"


class UndefinedRole(TemplateFailure):
    """The meta template does not define a turn's role. The error message names the role, but not the client's text."""

    def __init__(self, turn: TurnMapping) -> None:
        fallback = turn.get("fallback_role")
        tried = f'role "{turn["role"]}"' + (f' or fallback_role "{fallback}"' if fallback else "")
        super().__init__(f"the meta template does not define {tried}")
        self.turn = turn
