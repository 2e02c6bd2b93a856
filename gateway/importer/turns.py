"""Which text stands before and after each role? Found by probing something that renders conversations.

A conversation of words that nobody else writes is rendered, and the text is cut at these words. What stands between
them is shared out between the end of one role and the begin of the next, so that every probe comes out. Whether every
other conversation does is for a comparison to say; this only finds the one candidate worth comparing.

An answer in the history may begin otherwise than the one being asked for (``ASSISTANT: `` and ``ASSISTANT:``). Then
earlier answers speak as a reserved role of their own, ANSWER, and the generating role only generates.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.core.errors import GatewayError, TemplateError

Say = Callable[[Sequence[Mapping[str, str]], bool], str]
"""(messages, whether the assistant's turn is opened behind them) → text. Raises ``GatewayError`` if refused."""

ANSWER = "ANSWER"
"""The role of earlier answers where they begin otherwise than the one that is asked for."""
SHOWN = 60


class NotTurns(TemplateError):
    """No begins and ends of roles make these texts."""


@dataclass(frozen=True, slots=True)
class Turns:
    """What stands around the turns."""

    begin: str
    human: tuple[str, str]
    answer: tuple[str, str]
    generate: str
    """What opens the answer that is asked for."""
    system: tuple[str, str] | None

    def unended(self, stops: Sequence[str]) -> tuple[str, ...]:
        """A note where nothing the model writes by itself ends its answer: no stop is given, and its end is unknown."""
        told_apart = self.human[0] and self.answer[1].strip()
        if stops or told_apart:
            return ()
        return ("the end of an answer cannot be told from the begin of the next turn: "
                "write the text that the model ends with under stop",)  # fmt: skip

    def keys(self) -> dict[str, Any]:
        """The keys of a meta template."""
        apart = self.generate != self.answer[0]
        keys: dict[str, Any] = {"begin": self.begin} if self.begin else {}
        keys["round"] = [
            {"role": "HUMAN", "begin": self.human[0], "end": self.human[1]},
            {"role": "BOT", "begin": self.generate, "end": self.answer[1], "generate": True},
        ]
        reserved = []
        if self.system is not None:
            reserved.append({"role": "SYSTEM", "begin": self.system[0], "end": self.system[1]})
        if apart:
            reserved.append({"role": ANSWER, "begin": self.answer[0], "end": self.answer[1]})
        if reserved:
            keys["reserved_roles"] = reserved
        if apart:
            keys["roles"] = {"assistant": ANSWER}
        return keys


@dataclass(frozen=True, slots=True)
class _Seen:
    """What stood between the words of the probes."""

    front: str | None
    """Before the first user message; None: never seen without a system message."""
    asked: str
    """Behind the last one: the user's end, and what opens the answer."""
    answered: str
    """Between a user message and an answer in the history."""
    again: str
    """Between an answer and the next user message."""
    system: tuple[str, str] | None
    """Before a system message, and between it and the first user message."""
    human_end: str | None
    """Behind a last user message when no answer is asked for; None: not known."""
    answer_end: str | None
    between_users: str | None


def infer(say: Say, *, bos_text: str = "", system: bool = True, alone: bool = True, closes: bool = True) -> Turns:
    """The turns that make the probes. Raises ``NotTurns`` with the reason.

    ``bos_text``: the token that the template's ``begin`` has to keep if the text starts with it.
    ``system``: False leaves system messages out. ``alone``: False leaves conversations without one out.
    ``closes``: can ``say`` leave the assistant's turn away? That tells ends from begins.
    """
    seen = _probe(say, system=system, alone=alone, closes=closes)
    human_begin = _human_begin(seen, bos_text)
    begin = _begin(seen, human_begin, bos_text)
    answer_end = seen.again.removesuffix(human_begin)
    human_end = _human_end(seen, human_begin)
    spoken = None
    if seen.system is not None:
        before, after = seen.system
        spoken = (before.removeprefix(begin), after.removesuffix(human_begin))
    return Turns(
        begin=begin,
        human=(human_begin, human_end),
        answer=(seen.answered.removeprefix(human_end), answer_end),
        generate=seen.asked.removeprefix(human_end),
        system=spoken,
    )


# ---------------------------------------------------------------- asking


def _probe(say: Say, *, system: bool, alone: bool, closes: bool) -> _Seen:
    ask = _Asker(say)
    led = "" if alone else "s"
    *front, asked = ask(f"{led}u")
    *front_again, answered, again, asked_again = ask(f"{led}uau")
    _same(front[-1], front_again[-1], "what stands before the first user message")
    _same(asked, asked_again, "what stands behind the last user message")
    middle = ask(f"{led}uauau")[len(front) : -1]
    for number, piece in enumerate(middle):
        _same((answered, again)[number % 2], piece, "what stands between the turns")
    spoken = None
    if system:
        before, after, last = ask("su")
        _same(asked, last, "what stands behind the last user message")
        _same(after, ask("suau")[1], "what stands behind a system message")
        spoken = (before, after)
    return _Seen(
        front[-1] if alone else None,
        asked,
        answered,
        again,
        spoken,
        ask.closed(f"{led}u") if closes else None,
        ask.closed(f"{led}ua") if closes else None,
        ask.middle(f"{led}uu", asked),
    )


class _Asker:
    """Renders conversations of words that nobody else writes, and gives what stands between them."""

    ROLES: Mapping[str, str] = {"s": "system", "u": "user", "a": "assistant"}

    def __init__(self, say: Say) -> None:
        self._say = say

    def __call__(self, form: str, *, open_turn: bool = True) -> list[str]:
        words = [f"x{secrets.token_hex(12)}x" for _ in form]
        messages = [{"role": self.ROLES[one], "content": word} for one, word in zip(form, words, strict=True)]
        try:
            text = self._say(messages, open_turn)
        except GatewayError as error:
            roles = ", ".join(self.ROLES[one] for one in form)
            raise NotTurns(f"the conversation {roles} is refused: {error.message}") from None
        pieces: list[str] = []
        rest = text
        for word, message in zip(words, messages, strict=True):
            who = f"the words of a message with the role {message['role']}"
            if text.count(word) != 1:
                raise NotTurns(f"{who} are {'written more than once' if word in text else 'left out or changed'}")
            before, found, rest = rest.partition(word)
            if not found:
                raise NotTurns(f"{who} are moved before an earlier message")
            pieces.append(before)
        return [*pieces, rest]

    def closed(self, form: str) -> str | None:
        """What stands behind a conversation that asks for nothing; None if that is not known."""
        try:
            return self(form, open_turn=False)[-1]
        except NotTurns:
            return None

    def middle(self, form: str, asked: str) -> str | None:
        """What stands between two user messages; None where they are refused or joined."""
        try:
            *_, between, last = self(form)
        except NotTurns:
            return None
        return between if last == asked else None


def _same(one: str, other: str, what: str) -> None:
    if one != other:
        raise NotTurns(f"{what} is not always the same: {_short(one)}, and elsewhere {_short(other)}")


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


# ---------------------------------------------------------------- sharing out


def _human_begin(seen: _Seen, bos_text: str) -> str:
    """The user's begin: behind the answer's end if that is known, else as long as it can be."""
    known = [seen.again, *([] if seen.front is None else [seen.front]), *([seen.system[1]] if seen.system else [])]
    longest = _common_end(known)
    fits = [longest[at:] for at in range(len(longest) + 1) if _fits(longest[at:], seen, bos_text)]
    if not fits:
        assert seen.system is not None  # else the empty begin always fits
        assert seen.front is not None
        raise NotTurns(
            "a system message changes what stands before it, so it is no turn of its own: without one the text begins "
            f"{_short(seen.front)}, with one {_short(seen.system[0])}"
        )
    if seen.answer_end is not None and seen.again.startswith(seen.answer_end):
        told = seen.again.removeprefix(seen.answer_end)
        if told in fits:
            return told
    return fits[0]


def _begin(seen: _Seen, human_begin: str, bos_text: str) -> str:
    """What is left for the template's own begin."""
    if seen.front is not None:
        return seen.front.removesuffix(human_begin)
    return bos_text if seen.system is not None and seen.system[0].startswith(bos_text) else ""


def _fits(human_begin: str, seen: _Seen, bos_text: str) -> bool:
    begin = _begin(seen, human_begin, bos_text)
    if bos_text and seen.front is not None and seen.front.startswith(bos_text) and not begin.startswith(bos_text):
        return False
    return seen.system is None or seen.system[0].startswith(begin)


def _human_end(seen: _Seen, human_begin: str) -> str:
    """The user's end: as a conversation that asks for nothing shows it, else up to the last line break but one."""
    told = [seen.human_end]
    if seen.between_users is not None and seen.between_users.endswith(human_begin):
        told.append(seen.between_users.removesuffix(human_begin))
    for end in told:
        if end is not None and seen.asked.startswith(end) and seen.answered.startswith(end):
            return end
    shared = _common_start(seen.asked, seen.answered)
    return shared[: shared.rfind("\n", 0, max(len(shared) - 1, 0)) + 1]


def _common_end(texts: Sequence[str]) -> str:
    return _common_start(*[text[::-1] for text in texts])[::-1]


def _common_start(*texts: str) -> str:
    shared = 0
    for chars in zip(*texts, strict=False):
        if len(set(chars)) > 1:
            break
        shared += 1
    return texts[0][:shared]
