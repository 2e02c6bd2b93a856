"""How is an ordinary conversation written in one pass? User and assistant in turn, and at most one slot.

The same pieces as ``template.py`` makes of it in its general way; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import Mark
from gateway.template.meta import KEPT, Marks, marks_of, origin_of
from gateway.template.prompter.filling import Filling
from gateway.template.prompter.history import history_runs
from gateway.template.prompter.prompter import Prompter
from gateway.template.prompter.runs import joined
from gateway.template.spec_prompter import PrompterSpec

OWN: Mark = ("", "template", True)
"""What the template itself says."""
GENERATE: Mark = ("assistant", "generate", True)


class Plain:
    """Writes conversations of user and assistant in one pass."""

    __slots__ = ("_closing", "_input_marks", "_opening", "_slot", "_user", "_voices")

    def __init__(self, prompter: Prompter, filling: Filling) -> None:
        marks = prompter.marks
        own = joined(history_runs(prompter.history, None, marks, prompter.dialect))
        self._opening = _whole(((marks.sos + marks.system, ""), *filling.system, (f"{marks.eos}\n\n{own}", "")))
        self._slot = bool(filling.slots)
        self._user = filling.user
        self._voices: Mapping[str, tuple[str, str, tuple[Marks, ...]]] = {
            "user": (marks.soh, marks.eoh, marks_of("user", bool(marks.soh), bool(marks.eoh))),
            "assistant": (marks.soa, marks.eoa, marks_of("assistant", bool(marks.soa), bool(marks.eoa))),
        }
        self._closing = (f"\n{marks.soh}\n", f"\n{marks.eoh}", f"{marks.soa}\n")
        self._input_marks = marks_of("user", True, True)

    @classmethod
    def of(cls, spec: PrompterSpec, prompter: Prompter, filling: Filling) -> Plain | None:
        """None: this prompter has no plain way, because more than the order of words decides."""
        begins = prompter.marks.sos + prompter.marks.system
        many = len(filling.slots) > 1 or (spec.exact and bool(filling.slots)) or bool(spec.input_slot)
        if spec.form != "chat" or many or not begins or begins.startswith("\n") or not prompter.dialect.modern:
            return None
        return cls(prompter, filling)

    def write(self, dialogue: Dialogue) -> tuple[tuple[str, ...], tuple[Mark | None, ...]] | None:
        """Pieces and marks; None: the dialogue is not plain."""
        messages = dialogue.messages
        last = len(messages) - 1
        if last < 0 or messages[last].role != "user":
            return None
        said = messages[last].text
        mark: Mark = ("user", origin_of(last), False)
        pieces: list[str] = []
        marks: list[Mark | None] = []
        for text, slot in self._opening:
            pieces.append(said if slot else text)
            marks.append(mark if slot else OWN)
        for number, message in enumerate(messages):
            voice = self._voices.get(message.role)
            if voice is None or message.parts or len(message.raw) > 2:
                return None
            if number < last:
                begin, end, kept = voice
                pieces += (begin, message.text, end)
                marks += kept[number] if number < KEPT else late_marks(message.role, begin, end, number)
        begin, end, generate = self._closing
        own, content, closing = self._input_marks[last] if last < KEPT else late_marks("user", begin, end, last)
        pieces.append(begin)
        marks.append(own)
        for text, slot in self._user:
            pieces.append(said if slot else text)
            marks.append(mark if slot else OWN)
        pieces += ("" if self._slot else said, end, generate)
        marks += (None if self._slot else content, closing, GENERATE)
        return tuple(pieces), tuple(marks)


def late_marks(role: str, begin: str, end: str, number: int) -> Marks:
    """The marks of a message so late that none are kept for it."""
    origin = origin_of(number)
    scaffold = (role, origin, True)
    return (scaffold if begin else None, (role, origin, False), scaffold if end else None)


def _whole(parts: Any) -> tuple[tuple[str, str], ...]:
    """Neighbouring texts made one; slots stay."""
    found: list[tuple[str, str]] = []
    for text, slot in parts:
        if slot or not found or found[-1][1]:
            if slot or text:
                found.append((text, slot))
        else:
            found[-1] = (found[-1][0] + text, "")
    return tuple(found)
