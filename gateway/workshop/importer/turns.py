"""Finds the text before and after each role by probing a renderer of conversations.

A probe is a conversation of random words. Its rendered text is cut at these words. The text between two words is
divided into the end of one role and the begin of the next role, so that every probe is reproduced. Other divisions
may exist. The comparison with the source shows whether all other conversations are rendered correctly too.

An earlier answer may begin differently from the requested answer (``ASSISTANT: ``, ``ASSISTANT:``).
In this case earlier answers get a separate reserved role, ANSWER.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from gateway.core.errors import ConfigError, GatewayError, TemplateError
from gateway.workshop.importer.source import Source
from gateway.workshop.parity.sides import Side
from metatemplate.errors import MetaTemplateError
from metatemplate.templates.registry import dialogue_of
from metatemplate.templates.spec import Example
from metatemplate.values.words import shown

EARLIER_ANSWER = "ANSWER"
ROLES = {"s": "system", "u": "user", "a": "assistant"}


class NotTurns(TemplateError):
    """Raised if no choice of begin and end for each role reproduces the probes."""

    def refuse(self, source: Source, line: int, key: str, subset: Sequence[str], hint: str = "") -> ConfigError:
        """Return the error to report for the source file."""
        without = "" if "system" in subset else "; to exclude system messages, add --without system"
        return source.refuse(
            line, f"the prompts cannot be written as begin and end of roles, because {self.message}{hint}{without}", key
        )


@dataclass(frozen=True, slots=True)
class Turns:
    """The begin of the whole text, and a pair (begin, end) for each role."""

    begin: str
    """The ``begin`` of the meta template, which starts the whole text."""
    human: tuple[str, str]
    answer: tuple[str, str]
    generate: str
    """The begin of the requested answer."""
    system: tuple[str, str] | None

    def notes(self, stops: Sequence[str]) -> tuple[str, ...]:
        """Return a note if neither ``stops`` nor the turns show where an answer ends."""
        if stops or (self.human[0] and self.answer[1].strip()):
            return ()
        return ("no text marks the end of an answer; write under stop the text with which the model ends its answer",)

    def keys(self) -> dict[str, Any]:
        """Return the keys of a meta template with these turns."""
        keys: dict[str, Any] = {"begin": self.begin} if self.begin else {}
        keys["round"] = [
            {"role": "HUMAN", "begin": self.human[0], "end": self.human[1]},
            {"role": "BOT", "begin": self.generate, "end": self.answer[1], "generate": True},
        ]
        named = {"SYSTEM": self.system, EARLIER_ANSWER: self.answer if self.answer[0] != self.generate else None}
        reserved = [{"role": name, "begin": one[0], "end": one[1]} for name, one in named.items() if one is not None]
        if reserved:
            keys["reserved_roles"] = reserved
        if named[EARLIER_ANSWER] is not None:
            keys["roles"] = {"assistant": EARLIER_ANSWER}
        return keys


def infer(side: Side, *, bos_text: str = "", system: bool = True) -> Turns:
    """Return the turns that reproduce the probes. Raises ``NotTurns`` with the reason.

    ``bos_text``: the BOS. If the text starts with the BOS, ``begin`` contains the BOS. ``system``: whether probes may
    have a system message.
    """
    front, last = _pieces(side, "u")
    front_again, answer_front, answer_back, last_again = _pieces(side, "uau")
    _check_same(front, front_again, "the text before the first user message")
    _check_same(last, last_again, "the text after the last user message")
    for number, piece in enumerate(_pieces(side, "uauau")[1:-1]):
        _check_same((answer_front, answer_back)[number % 2], piece, "the text between the turns")
    around = None
    if system:
        before, after, last_again = _pieces(side, "su")
        _check_same(last, last_again, "the text after the last user message")
        _check_same(after, _pieces(side, "suau")[1], "the text after a system message")
        around = (before, after)
    begin, human_begin = _begins(front, around, answer_back, _end(side, "ua"), bos_text)
    human_end = _human_end(_end(side, "u"), last, answer_front)
    if around is not None:
        around = (around[0].removeprefix(begin), around[1].removesuffix(human_begin))
    return Turns(
        begin=begin,
        human=(human_begin, human_end),
        answer=(answer_front.removeprefix(human_end), answer_back.removesuffix(human_begin)),
        generate=last.removeprefix(human_end),
        system=around,
    )


# ---------------------------------------------------------------- probing


def _pieces(side: Side, form: str, *, whole: bool = False) -> list[str]:
    """Render a probe, and return the texts before, between and after its messages.

    ``form``: one letter for the role of each message, such as ``suau``.
    """
    words = [f"x{secrets.token_hex(12)}x" for _ in form]
    messages = [{"role": ROLES[one], "content": word} for one, word in zip(form, words, strict=True)]
    try:
        text = side.render(dialogue_of(Example(tuple(messages)), whole=whole)).text
    except (GatewayError, MetaTemplateError) as error:
        roles = ", ".join([ROLES[one] for one in form])
        raise NotTurns(f"the source refuses a test conversation with the roles {roles}: {error.message}") from None
    pieces = []
    rest = text
    for message in messages:
        word, which = message["content"], f"the text of a message with the role {message['role']}"
        if text.count(word) != 1:
            raise NotTurns(f"{which} is {'written more than once' if word in text else 'left out or changed'}")
        before, found, rest = rest.partition(word)
        if not found:
            raise NotTurns(f"{which} is moved before an earlier message")
        pieces.append(before)
    return [*pieces, rest]


def _end(side: Side, form: str) -> str | None:
    """Return the text after the last message of a complete conversation; None if this text cannot be found."""
    try:
        return _pieces(side, form, whole=True)[-1] if side.writes_whole else None
    except NotTurns:
        return None


def _check_same(one: str, other: str, what: str) -> None:
    if one != other:
        raise NotTurns(
            f"the source writes {what} in two ways, {shown(one)} and {shown(other)}, and a meta template has one"
        )


# ---------------------------------------------------------------- dividing


def _begins(
    front: str, system: tuple[str, str] | None, answer_back: str, answer_end: str | None, bos_text: str
) -> tuple[str, str]:
    """Return the begin of the whole text, and the begin of a user turn.

    If the end of an answer is known, a user turn begins after this end, otherwise with the longest text that fits.
    ``front``: the text before the first user message. ``system``: the texts around a system message.
    """
    known = [answer_back, front, *([] if system is None else [system[1]])]
    longest = _common_start([text[::-1] for text in known])[::-1]
    fits: dict[str, str] = {}
    """Possible begin of a user turn → begin of the whole text."""
    for human in [longest[at:] for at in range(len(longest) + 1)]:
        begin = front.removesuffix(human)
        cuts_bos = front.startswith(bos_text) and not begin.startswith(bos_text)
        if not cuts_bos and (system is None or system[0].startswith(begin)):
            fits[human] = begin
    if not fits:
        assert system is not None  # else the empty begin always fits
        raise NotTurns(
            "a system message changes the start of the prompt: the prompt begins with "
            f"{shown(system[0])}, but without a system message, the prompt begins with {shown(front)}"
        )
    human = next(iter(fits))
    if answer_end is not None and answer_back.startswith(answer_end) and answer_back[len(answer_end) :] in fits:
        human = answer_back[len(answer_end) :]
    return fits[human], human


def _human_end(end: str | None, last: str, answer_front: str) -> str:
    """Return the end of a user turn.

    This is ``end`` if both texts start with it, otherwise the common start of both texts up to an inner line break.
    """
    if end is not None and last.startswith(end) and answer_front.startswith(end):
        return end
    shared = _common_start([last, answer_front])
    return shared[: shared.rfind("\n", 0, max(len(shared) - 1, 0)) + 1]


def _common_start(texts: Sequence[str]) -> str:
    same = takewhile(lambda chars: len(set(chars)) == 1, zip(*texts, strict=False))
    return "".join([chars[0] for chars in same])
