"""How is an ordinary conversation written in one pass? User and assistant in turn, perhaps a system message in front.

Such conversations of one length, with the same tools, differ in their texts only. So the words of the template are
laid out once, with gaps, and a request puts its texts into the gaps. It is the text that ``template.py`` makes of the
same dialogue in its general way, which is also asked where the pieces come from; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from gateway.core.dialogue import Dialogue
from gateway.core.prompt import Notice
from gateway.template.prompter.assembly import ANSWER
from gateway.template.prompter.filling import TOOL_NAMES, Filling, Part
from gateway.template.prompter.history import history_runs
from gateway.template.prompter.prompter import Prompter
from gateway.template.prompter.request import folded_notice
from gateway.template.prompter.runs import joined
from gateway.template.prompter.tools import tool_names, write_tools
from gateway.template.spec_prompter import PrompterSpec

LENGTHS = 64
"""Lengths of conversations whose layout is kept."""
LONGEST = 512
"""Messages of the longest of them: how many there are is the client's choice."""

Gap = int | str
"""What belongs there: the text of ``messages[2]``, or the value of a variable."""
TOOLS = -1
"""The gap of the tools, whose text is shared by all frames."""


class Frame(NamedTuple):
    """A conversation of one length without its texts."""

    roles: list[str]
    pieces: list[str]
    """The template's words, and between any two of them a gap."""
    slots: tuple[str, ...]
    """The variables whose values stand in some gap."""
    chosen: Callable[[list[str]], Iterable[str]] | None
    """What stands in the gaps, of all texts, the values of ``slots`` and the tools; None: all, in their order."""
    notices: tuple[Notice, ...]


class Plain:
    """Writes conversations of user and assistant."""

    __slots__ = (
        "_alone",
        "_frame",
        "_into",
        "_listed",
        "_needed",
        "_open",
        "_preamble",
        "_prompter",
        "_system",
        "_user",
    )

    def __init__(self, spec: PrompterSpec, prompter: Prompter, filling: Filling, tools: Any = None) -> None:
        """``filling``: with the explanation of calls, if there are ``tools``."""
        names = tool_names(tools)
        self._prompter = prompter
        self._listed = write_tools(tools, prompter.dialect)
        self._system = _named(filling.system, names)
        self._preamble = _named(filling.preamble, names)
        self._user = _named(filling.user, names)
        self._into = spec.input_slot
        """The slot that the last message always fills."""
        self._needed = frozenset(filling.slots) - {spec.input_slot}
        """The slots that variables fill."""
        self._alone = filling.slots[0] if len(filling.slots) == 1 else ""
        """The only slot, which the message fills when there are no variables."""
        self._open = bool(self._system and self._system[-1][1])
        """The system part ends in a slot: what the user writes there decides how a system message joins it."""
        self._frame: Callable[[int, bool, str], Frame] = lru_cache(maxsize=LENGTHS)(self._laid_out)

    @staticmethod
    def fits(spec: PrompterSpec, prompter: Prompter, filling: Filling) -> bool:
        """Has this prompter a plain way? Not where more than the order of words decides."""
        begins = prompter.marks.system if spec.form == "alpaca" else prompter.marks.sos + prompter.marks.system
        searched = spec.exact and bool(filling.slots)
        plain = spec.form != "empty" and not searched and prompter.dialect.modern
        return plain and bool(begins) and not begins.startswith("\n")

    def write(self, dialogue: Dialogue) -> tuple[str, tuple[Notice, ...]] | None:
        """The text; None: the dialogue is not plain. Its tools are those of this ``Plain``."""
        messages = dialogue.messages
        length = len(messages)
        led = length > 0 and messages[0].role == "system"
        if (length - led) % 2 == 0 or (led and self._open):
            return None
        into = self._chosen(dialogue.variables, length - led)
        if into is None:
            return None
        frame = (self._frame if length <= LONGEST else self._laid_out)(length, led, into)
        texts = [m.text for m in messages if not m.parts and (m.text or not m.raw) and len(m.raw) < 3]
        if len(texts) < length or [message.role for message in messages] != frame.roles:
            return None
        for slot in frame.slots:
            value = dialogue.variables[slot]
            if not isinstance(value, str):
                return None
            texts.append(value)
        if self._listed:
            texts.append(self._listed)
        pieces = frame.pieces.copy()
        pieces[1::2] = texts if frame.chosen is None else frame.chosen(texts)
        return "".join(pieces), frame.notices

    def _chosen(self, variables: Mapping[str, Any], turns: int) -> str | None:
        """The slot that the last message fills, empty for none; None: this is not for the plain way."""
        single, into = self._prompter.form == "alpaca", self._into
        if not variables:
            into = self._alone or into
            if self._needed and not self._alone:
                return None
        elif frozenset(variables) != self._needed or (single and not into):
            return None
        return None if single and turns > 1 else into

    def _laid_out(self, length: int, led: bool, into: str) -> Frame:
        marks, dialect, last = self._prompter.marks, self._prompter.dialect, length - 1
        single = self._prompter.form == "alpaca"
        own = joined(history_runs(self._prompter.history, None, marks, dialect))
        opening = f"{marks.system}\n" if single else marks.sos + marks.system
        words: list[list[str] | Gap] = [[opening], *_spoken(self._system, last, into)]  # a list is no gap
        if led:
            before = words[-1][0] if len(words) > 1 and isinstance(words[-1], list) else ""
            words += [["\n" if before and not before.endswith("\n") else ""], 0, ["\n\n"]]
        words += _spoken(self._preamble, last, into)
        listed: list[list[str] | Gap] = [TOOLS] if self._listed else []
        words += [["\n"], *listed, [dialect.tail]] if single else [*listed, [f"{marks.eos}\n\n{own}"]]
        roles = [("user", "assistant")[(number - led) % 2] for number in range(led, length)]
        tokens = {"user": (marks.soh, marks.eoh), "assistant": (marks.soa, marks.eoa)}
        for number, role in enumerate(roles[:-1], led):
            words += [[tokens[role][0]], number, [tokens[role][1]]]
        user = _spoken(self._user, last, into)
        if single:
            words += [*user, [ANSWER]]
        else:
            words += [[f"\n{marks.soh}\n"], *user, *([] if into else [last]), [f"\n{marks.eoh}{marks.soa}\n"]]
        pieces, gaps = _between(words)
        slots = tuple(dict.fromkeys([gap for gap in gaps if isinstance(gap, str)]))
        order: tuple[Gap, ...] = (*range(length), *slots, TOOLS)
        place = {gap: number for number, gap in enumerate(order)}
        places = [place[gap] for gap in gaps]
        return Frame(
            roles=["system", *roles] if led else roles,
            pieces=pieces,
            slots=slots,
            chosen=None if places == list(range(length)) else _chooser(places),
            notices=(folded_notice(0),) if led else (),
        )


def _chooser(places: list[int]) -> Callable[[list[str]], Iterable[str]]:
    if len(places) == 1:
        place = places[0]
        return lambda texts: (texts[place],)
    return itemgetter(*places)


def _named(parts: Iterable[Part], names: str) -> tuple[Part, ...]:
    """The parts with the tools' names where they are asked for."""
    return tuple([(names, "") if slot == TOOL_NAMES else (text, slot) for text, slot in parts])


def _spoken(parts: Iterable[Part], last: int, into: str) -> list[list[str] | Gap]:
    """The template's words, the message where its slot is, and the places of the variables."""
    return [[text] if not slot else last if slot == into else slot for text, slot in parts]


def _between(words: Iterable[list[str] | Gap]) -> tuple[list[str], tuple[Gap, ...]]:
    """Words and gaps in turn: words that follow each other are one, and none may be empty."""
    pieces, gaps = [""], []
    for word in words:
        if isinstance(word, list):
            pieces[-1] += word[0]
        else:
            gaps.append(word)
            pieces += ["", ""]
    return pieces, tuple(gaps)
