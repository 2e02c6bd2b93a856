"""How is an ordinary conversation written in one pass? User and assistant in turn, perhaps a system message in front.

Such conversations of one length, with the same tools, differ in their texts only. So the words of the template are
laid out once, with gaps, and a request puts its texts into the gaps. It is the text that ``template.py`` makes of the
same dialogue in its general way, which is also asked where the pieces come from; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from gateway.core.prompt import PromptMetadata
from gateway.template.layout import Gap, LayoutCache, PromptLayout, Roles, spaced, with_gaps
from gateway.template.lazyllm.assembly import ANSWER
from gateway.template.lazyllm.filling import TOOL_NAMES, Filling, Part
from gateway.template.lazyllm.history import history_runs
from gateway.template.lazyllm.prompter import Prompter
from gateway.template.lazyllm.request import folded_notice
from gateway.template.lazyllm.runs import joined
from gateway.template.lazyllm.tools import tool_names, write_tools
from gateway.template.spec.prompter import PrompterSpec

TOOLS = -1
"""The gap of the tools, whose text is shared by all layouts."""


class Slotted:
    """A conversation without its texts, behind a front that has one slot, as most templates with slots write it."""

    __slots__ = ("_around", "_last", "_slot", "_words", "manner")

    def __init__(self, words: list[str], manner: PromptMetadata, slot: str) -> None:
        self.manner = manner
        self._slot = slot
        self._around = (words[0], words[1])
        """What stands before and after the slot's value."""
        self._last = words[2] if len(words) == 3 else None
        """What stands behind the only text."""
        self._words = with_gaps(["", *words[2:]])

    def filled(self, texts: list[str], variables: Mapping[str, Any]) -> str | None:
        """The whole; None: there are other variables, or the value is no text."""
        value = variables.get(self._slot)
        if type(value) is not str or len(variables) > 1:
            return None
        head = value.join(self._around)
        if self._last is not None:
            return head + texts[0] + self._last
        pieces = self._words.copy()
        pieces[1::2] = texts
        if not head.isascii():  # widened once: see ``PromptLayout``
            return head + "".join(pieces)
        pieces[0] = head
        return "".join(pieces)


class Mingled:
    """A conversation without its texts, whose gaps hold them in another order, or more than them."""

    __slots__ = ("_chosen", "_slots", "_tools", "_words", "manner")

    def __init__(
        self, words: list[str], manner: PromptMetadata, slots: tuple[str, ...], tools: str, places: list[int]
    ) -> None:
        """``places``: of what stands in the gaps, among the slots' values, the tools and the texts, in this order."""
        self.manner = manner
        self._words = with_gaps(words)
        self._slots = slots
        self._tools = (tools,) if tools else ()
        self._chosen = None if places == [*range(len(places))] else _chooser(places)

    def filled(self, texts: list[str], variables: Mapping[str, Any]) -> str | None:
        """The whole; None: the variables are not those of the slots, or some are no texts."""
        if len(variables) != len(self._slots):
            return None
        values = []
        for slot in self._slots:
            value = variables.get(slot)
            if type(value) is not str:
                return None
            values.append(value)
        everything = [*values, *self._tools, *texts]
        pieces = self._words.copy()
        pieces[1::2] = everything if self._chosen is None else self._chosen(everything)
        return "".join(pieces)


Layout = Slotted | Mingled
Laid = tuple[list[str], list[Gap], PromptMetadata]
"""The words of a conversation of one length, and what belongs between them."""


class Plain:
    """Writes conversations of user and assistant."""

    __slots__ = (
        "_alone",
        "_into",
        "_listed",
        "_manner",
        "_open",
        "_preamble",
        "_prompter",
        "_slots",
        "_system",
        "_user",
        "unvaried",
        "varied",
    )

    def __init__(
        self, spec: PrompterSpec, prompter: Prompter, filling: Filling, manner: PromptMetadata, tools: Any = None
    ) -> None:
        """``filling``: with the explanation of calls, if there are ``tools``."""
        names = tool_names(tools)
        self._prompter = prompter
        self._manner = manner
        self._listed = write_tools(tools, prompter.dialect)
        self._system = _named(filling.system, names)
        self._preamble = _named(filling.preamble, names)
        self._user = _named(filling.user, names)
        self._into = spec.input_slot
        """The slot that the last message always fills."""
        self._slots = tuple([slot for slot in filling.slots if slot != spec.input_slot])
        """The slots that variables fill."""
        self._alone = filling.slots[0] if len(filling.slots) == 1 else ""
        """The only slot, which the message fills when there are no variables."""
        self._open = bool(self._system and self._system[-1][1])
        """The system part ends in a slot: what the user writes there decides how a system message joins it."""
        self.unvaried: LayoutCache[Layout | None] = LayoutCache(partial(self._layout, varied=False))
        self.varied: LayoutCache[Layout | None] = LayoutCache(partial(self._layout, varied=True))
        """``varied``: the request fills the slots. None: such a conversation is not plain."""

    @staticmethod
    def fits(spec: PrompterSpec, prompter: Prompter, filling: Filling) -> bool:
        """Has this prompter a plain way? Not where more than the order of words decides."""
        begins = prompter.marks.system if spec.form == "alpaca" else prompter.marks.sos + prompter.marks.system
        searched = spec.exact and bool(filling.slots)
        plain = spec.form != "empty" and not searched and prompter.dialect.modern
        return plain and bool(begins) and not begins.startswith("\n")

    def _chosen(self, varied: bool, turns: int) -> str | None:
        """The slot that the last message fills, empty for none; None: this is not for the plain way."""
        single, into = self._prompter.form == "alpaca", self._into
        if not varied:
            into = self._alone or into
            if self._slots and not self._alone:
                return None
        elif single and not into:
            return None
        return None if single and turns > 1 else into

    def frame(self, roles: Roles) -> PromptLayout | None:
        """Of conversations that are nothing but their texts, in order; None: there is more to such a one."""
        laid = self._laid_out(roles, varied=False)
        if laid is None or laid[1] != [*range(len(roles))]:
            return None
        words, _, manner = laid
        return PromptLayout(words, manner)

    def _layout(self, roles: Roles, varied: bool) -> Layout | None:
        laid = self._laid_out(roles, varied)
        if laid is None:
            return None
        words, gaps, manner = laid
        slots = self._slots if varied else ()
        texts: list[Gap] = [*range(len(roles))]
        more: list[Gap] = [*[(slot,) for slot in slots], *([TOOLS] if self._listed else [])]
        if gaps == [*more, *texts] and len(slots) == len(more) == 1:
            return Slotted(words, manner, slots[0])
        place = {gap: number for number, gap in enumerate([*more, *texts])}
        return Mingled(words, manner, slots, self._listed, [place[gap] for gap in gaps])

    def _laid_out(self, roles: Roles, varied: bool) -> Laid | None:
        last, led = len(roles) - 1, roles[:1] == ("system",)
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
            words += [marks.eoh + marks.soa, marks.eoa + marks.soh] * ((last - led) // 2)
            words[-1] = marks.eoa
        words[-1] += tail[0]
        manner = replace(self._manner, notices=(folded_notice(0),)) if led else self._manner
        return [*words, *tail[1:]], [*gaps, *range(led, last), *last_gaps], manner


def _chooser(places: list[int]) -> Callable[[list[str]], Sequence[str]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda texts: [texts[place] for place in places]


def _named(parts: Iterable[Part], names: str) -> tuple[Part, ...]:
    """The parts with the tools' names where they are asked for."""
    return tuple([(names, "") if slot == TOOL_NAMES else (text, slot) for text, slot in parts])


def _spoken(parts: Iterable[Part], last: int, into: str) -> list[str | Gap]:
    """The template's words, the message where its slot is, and the places of the variables."""
    return [text if not slot else last if slot == into else (slot,) for text, slot in parts]
