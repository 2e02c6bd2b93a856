"""How is an ordinary conversation written in one pass? User and assistant in turn, perhaps a system message in front.

Such conversations of one length, with the same tools, differ in their texts only. So the words of the template are
laid out once, with gaps, and a request puts its texts into the gaps. It is the text that ``template.py`` makes of the
same dialogue in its general way, which is also asked where the pieces come from; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from gateway.core.dialogue import Dialogue, PlainMessages
from gateway.core.prompt import Notice
from gateway.template.frame import LONGEST, ORDERS, Frame, Gap, spaced
from gateway.template.prompter.assembly import ANSWER
from gateway.template.prompter.filling import TOOL_NAMES, Filling, Part
from gateway.template.prompter.history import history_runs
from gateway.template.prompter.prompter import Prompter
from gateway.template.prompter.request import folded_notice
from gateway.template.prompter.runs import joined
from gateway.template.prompter.tools import tool_names, write_tools
from gateway.template.spec_prompter import PrompterSpec

TOOLS = -1
"""The gap of the tools, whose text is shared by all layouts."""


class Layout(NamedTuple):
    """A conversation of one length without its texts."""

    frame: Frame
    slots: tuple[str, ...]
    """The variables whose values stand in some gap."""
    chosen: Callable[[list[str]], Iterable[str]] | None
    """What stands in the gaps, of all texts, the values of ``slots`` and the tools; None: all, in their order."""


class Plain:
    """Writes conversations of user and assistant."""

    __slots__ = (
        "_alone",
        "_into",
        "_layout",
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
        self._layout: Callable[[tuple[str, ...], bool], Layout | None]
        self._layout = lru_cache(maxsize=ORDERS)(self._laid_out)

    @staticmethod
    def fits(spec: PrompterSpec, prompter: Prompter, filling: Filling) -> bool:
        """Has this prompter a plain way? Not where more than the order of words decides."""
        begins = prompter.marks.system if spec.form == "alpaca" else prompter.marks.sos + prompter.marks.system
        searched = spec.exact and bool(filling.slots)
        plain = spec.form != "empty" and not searched and prompter.dialect.modern
        return plain and bool(begins) and not begins.startswith("\n")

    def write(self, dialogue: Dialogue) -> tuple[str, tuple[Notice, ...]] | None:
        """The text; None: the dialogue is not plain. Its tools are those of this ``Plain``."""
        messages, variables = dialogue.messages, dialogue.variables
        if type(messages) is not PlainMessages:
            return None
        roles, texts = messages.roles, messages.texts
        if variables and variables.keys() != self._needed:
            return None  # names that a client has made up are nothing to keep
        layout = (self._layout if len(roles) <= LONGEST else self._laid_out)(roles, bool(variables))
        if layout is None:
            return None
        frame, slots, chosen = layout
        if slots or self._listed:
            texts = texts.copy()
            for slot in slots:
                value = variables[slot]
                if not isinstance(value, str):
                    return None
                texts.append(value)
            if self._listed:
                texts.append(self._listed)
        return frame.filled(texts if chosen is None else chosen(texts)), frame.notices

    def _chosen(self, varied: bool, turns: int) -> str | None:
        """The slot that the last message fills, empty for none; None: this is not for the plain way."""
        single, into = self._prompter.form == "alpaca", self._into
        if not varied:
            into = self._alone or into
            if self._needed and not self._alone:
                return None
        elif single and not into:
            return None
        return None if single and turns > 1 else into

    def _laid_out(self, roles: tuple[str, ...], varied: bool) -> Layout | None:
        """``varied``: the request fills the slots. None: such a conversation is not plain."""
        length, last, led = len(roles), len(roles) - 1, roles[:1] == ("system",)
        turns = roles[led:]
        into = self._chosen(varied, len(turns))
        alternate = len(turns) % 2 and {*turns[::2]} == {"user"} and {*turns[1::2]} <= {"assistant"}
        if not alternate or into is None or (led and self._open):
            return None
        marks, dialect = self._prompter.marks, self._prompter.dialect
        single = self._prompter.form == "alpaca"
        own = joined(history_runs(self._prompter.history, None, marks, dialect))
        front: list[str | Gap] = [f"{marks.system}\n" if single else marks.sos + marks.system]
        front += _spoken(self._system, last, into)
        if led:
            before = front[-1] if len(front) > 1 and isinstance(front[-1], str) else ""
            front += ("\n" if before and not before.endswith("\n") else "", 0, "\n\n")
        front += _spoken(self._preamble, last, into)
        listed: list[str | Gap] = [TOOLS] if self._listed else []
        front += ["\n", *listed, dialect.tail] if single else [*listed, f"{marks.eos}\n\n{own}"]
        user = _spoken(self._user, last, into)
        if single:
            back = [*user, ANSWER]
        else:
            back = [f"\n{marks.soh}\n", *user, *([] if into else [last]), f"\n{marks.eoh}{marks.soa}\n"]
        words, gaps = spaced([*front, marks.soh] if last > led else front)
        tail, last_gaps = spaced(back)
        if last > led:  # the turns before the last, of which each answer ends where the next question begins
            words += ["", marks.eoh + marks.soa, "", marks.eoa + marks.soh] * ((last - led) // 2)
            words[-1] = marks.eoa
        words[-1] += tail[0]
        return Layout(
            Frame([*words, *tail[1:]], (folded_notice(0),) if led else ()),
            *_order([*gaps, *range(led, last), *last_gaps], length),
        )


def _order(gaps: list[Gap], length: int) -> tuple[tuple[str, ...], Callable[[list[str]], Iterable[str]] | None]:
    """The variables among the gaps, and how the gaps' texts are chosen of all there are."""
    if gaps == [*range(length)]:
        return (), None
    slots = tuple(dict.fromkeys([gap[0] for gap in gaps if isinstance(gap, tuple)]))
    everything: tuple[Gap, ...] = (*range(length), *[(slot,) for slot in slots], TOOLS)
    place = {gap: number for number, gap in enumerate(everything)}
    return slots, _chooser([place[gap] for gap in gaps])


def _chooser(places: list[int]) -> Callable[[list[str]], Iterable[str]]:
    if len(places) == 1:
        place = places[0]
        return lambda texts: (texts[place],)
    return itemgetter(*places)


def _named(parts: Iterable[Part], names: str) -> tuple[Part, ...]:
    """The parts with the tools' names where they are asked for."""
    return tuple([(names, "") if slot == TOOL_NAMES else (text, slot) for text, slot in parts])


def _spoken(parts: Iterable[Part], last: int, into: str) -> list[str | Gap]:
    """The template's words, the message where its slot is, and the places of the variables."""
    return [text if not slot else last if slot == into else (slot,) for text, slot in parts]
