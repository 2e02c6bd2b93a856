"""How is an ordinary conversation written in one pass? User and assistant in turn, perhaps a system message in front.

Such conversations of one length differ in their texts only. So the words of the template and the marks of all pieces
are laid out once for each length, and a request puts its texts between them. What ``template.py`` makes of the same
dialogue in its general way is the same; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import Mark, Notice
from gateway.template.meta import origin_of
from gateway.template.prompter.assembly import ANSWER
from gateway.template.prompter.filling import Filling, Part
from gateway.template.prompter.history import history_runs
from gateway.template.prompter.prompter import Prompter
from gateway.template.prompter.request import folded_notice
from gateway.template.prompter.runs import joined
from gateway.template.spec_prompter import PrompterSpec

OWN: Mark = ("", "template", True)
"""What the template itself says."""
GENERATE: Mark = ("assistant", "generate", True)

VARIABLE = "variables."
"""Begins the origin of a variable's value."""

LENGTHS = 64
"""Lengths of conversations that are laid out at a time."""

Piece = tuple[str, Mark | None]
Written = tuple[tuple[str, ...], tuple[Mark | None, ...], tuple[Notice, ...]]


class Frame(NamedTuple):
    """A conversation of one length without its texts."""

    roles: list[str]
    pieces: list[str]
    marks: tuple[Mark | None, ...]
    turns: slice
    """Where the texts of the earlier turns belong."""
    system: int | None
    """Where the system message's text belongs."""
    said: tuple[int, ...]
    """Where the last message's text belongs."""
    slots: tuple[tuple[int, str], ...]
    """Where a variable's value belongs."""
    notices: tuple[Notice, ...]


class Plain:
    """Writes conversations of user and assistant."""

    __slots__ = ("_alone", "_filling", "_frame", "_into", "_needed", "_open", "_prompter")

    def __init__(self, spec: PrompterSpec, prompter: Prompter, filling: Filling) -> None:
        self._prompter = prompter
        self._filling = filling
        self._into = spec.input_slot
        """The slot that the last message always fills."""
        self._needed = frozenset(filling.slots) - {spec.input_slot}
        """The slots that variables fill."""
        self._alone = filling.slots[0] if len(filling.slots) == 1 else ""
        """The only slot, which the message fills when there are no variables."""
        self._open = bool(filling.system and filling.system[-1][1])
        """The system part ends in a slot: what the user writes there decides how a system message joins it."""
        self._frame: Callable[[int, bool, str], Frame] = lru_cache(maxsize=LENGTHS)(self._laid_out)

    @classmethod
    def of(cls, spec: PrompterSpec, prompter: Prompter, filling: Filling) -> Plain | None:
        """None: this prompter has no plain way, because more than the order of words decides."""
        begins = prompter.marks.system if spec.form == "alpaca" else prompter.marks.sos + prompter.marks.system
        searched = spec.exact and bool(filling.slots)
        if spec.form == "empty" or searched or not begins or begins.startswith("\n") or not prompter.dialect.modern:
            return None
        return cls(spec, prompter, filling)

    def write(self, dialogue: Dialogue) -> Written | None:
        """Pieces, marks and notices; None: the dialogue is not plain."""
        messages = dialogue.messages
        length = len(messages)
        led = length > 0 and messages[0].role == "system"
        if (length - led) % 2 == 0 or (led and self._open):
            return None
        variables, single = dialogue.variables, self._prompter.form == "alpaca"
        into = self._into
        if not variables:
            into = self._alone or into
            if self._needed and not self._alone:
                return None
        elif frozenset(variables) != self._needed or (single and not into):
            return None
        if single and length - led > 1:
            return None
        frame = self._frame(length, led, into)
        texts = [message.text for message in messages if not message.parts and len(message.raw) < 3]
        if len(texts) < length or [message.role for message in messages] != frame.roles:
            return None
        pieces = frame.pieces.copy()
        last = texts.pop()
        for at in frame.said:
            pieces[at] = last
        if frame.system is not None:
            pieces[frame.system] = texts.pop(0)
        if texts:
            pieces[frame.turns] = texts
        for at, slot in frame.slots:
            value = pieces[at] = variables[slot]
            if not isinstance(value, str):
                return None
        return tuple(pieces), frame.marks, frame.notices

    def _laid_out(self, length: int, led: bool, into: str) -> Frame:
        marks, last = self._prompter.marks, length - 1
        single = self._prompter.form == "alpaca"
        own = joined(history_runs(self._prompter.history, None, marks, self._prompter.dialect))
        said: Piece = ("", ("user", origin_of(last), False))
        system: Piece = ("", ("system", origin_of(0), False))
        opening = f"{marks.system}\n" if single else marks.sos + marks.system
        pieces: list[Piece] = [(opening, OWN), *_spoken(self._filling.system, said, into)]
        if led:
            before = "" if len(pieces) == 1 else pieces[-1][0]
            pieces += [("\n" if before and not before.endswith("\n") else "", OWN), system, ("\n\n", OWN)]
        pieces.append((f"\n{self._prompter.dialect.tail}" if single else f"{marks.eos}\n\n{own}", OWN))
        first = len(pieces) + 1
        roles = [("user", "assistant")[(number - led) % 2] for number in range(led, length)]
        tokens = {"user": (marks.soh, marks.eoh), "assistant": (marks.soa, marks.eoa)}
        for number, role in enumerate(roles[:-1], led):
            (begin, end), origin = tokens[role], origin_of(number)
            pieces += [(begin, (role, origin, True)), ("", (role, origin, False)), (end, (role, origin, True))]
        turns = slice(first, len(pieces), 3)
        asked: Mark = ("user", origin_of(last), True)
        user = _spoken(self._filling.user, said, into)
        if single:
            pieces += [*user, (ANSWER, GENERATE)]
        else:
            pieces += [(f"\n{marks.soh}\n", asked), *user, *(() if into else (said,)), (f"\n{marks.eoh}", asked)]
            pieces.append((f"{marks.soa}\n", GENERATE))
        return Frame(
            roles=["system", *roles] if led else roles,
            pieces=[text for text, _ in pieces],
            marks=tuple([mark if text or (mark and not mark[2]) else None for text, mark in pieces]),
            turns=turns,
            system=next((at for at, piece in enumerate(pieces) if piece is system), None),
            said=tuple([at for at, piece in enumerate(pieces) if piece is said]),
            slots=tuple(
                [
                    (at, mark[1].removeprefix(VARIABLE))
                    for at, (_, mark) in enumerate(pieces)
                    if mark and mark[1].startswith(VARIABLE)
                ]
            ),
            notices=(folded_notice(0),) if led else (),
        )


def _spoken(parts: Iterable[Part], said: Piece, into: str) -> list[Piece]:
    """The template's words, the message where its slot is, and the places of the variables."""
    return [
        (text, OWN) if not slot else said if slot == into else ("", ("system", VARIABLE + slot, False))
        for text, slot in parts
    ]
