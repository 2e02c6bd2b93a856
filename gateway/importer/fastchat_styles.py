"""FastChat's separator styles as data (``fastchat_styles.json``), and a renderer of its conversations.

``begin`` starts every text, ``bos`` names the BOS in it. ``system`` is the text before the turns with a system message,
``without`` without one; ``needs: message``: the system template is used only for a message. ``turn`` is a turn,
``first`` the first one, ``answer`` the assistant's, ``open`` the requested answer, ``round`` the text before
each round, ``behind`` the text behind an answer. ``{either}`` is ``sep`` in even turns and ``sep2`` in odd ones.
``alternates``: the role is chosen by the place of the turn. ``trims``: messages are stripped.
Compared with FastChat 0.2.36; three styles are newer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from gateway.core.dialogue import Dialogue
from gateway.core.errors import InvalidValue

SLOT = re.compile(r"\{(\w+)\}")


@cache
def styles() -> Mapping[str, Mapping[str, Any]]:
    """The styles by name; read once."""
    text = resources.files(__package__).joinpath("fastchat_styles.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return found


@dataclass(frozen=True, slots=True)
class Conversation:
    """The fields of FastChat's class that decide the prompt."""

    name: str
    roles: tuple[str, str]
    sep_style: str
    sep: str = "\n"
    sep2: str = ""
    system_template: str = "{system_message}"

    @property
    def bos_text(self) -> str:
        """The BOS in the text of the style; empty: it has none."""
        return str(styles()[self.sep_style].get("bos", ""))

    @property
    def writes_empty_system(self) -> bool:
        """Whether FastChat writes an empty system turn when there is no system message."""
        style = styles()[self.sep_style]
        return style.get("needs") != "message" and bool(self.system_template.replace("{system_message}", ""))

    def prompt(self, dialogue: Dialogue, *, open_turn: bool = True) -> str:
        """The text of a conversation; with ``open_turn`` the assistant's turn is opened at its end.

        Raises ``InvalidValue`` for system messages that are not the first, and for other roles.
        """
        style = styles()[self.sep_style]
        system = ""
        turns: list[tuple[str, str | None]] = []
        for number, message in enumerate(dialogue.messages):
            role = message.role
            if role == "system" and number == 0:
                system = message.text
            elif role in ("user", "assistant"):
                turns.append((self.roles[role == "assistant"], message.text))
            else:
                raise InvalidValue(f"FastChat has no turn for this {role} message", param=f"messages[{number}].role")
        if open_turn:
            turns.append((self.roles[1], None))
        parts = [style.get("begin", ""), self._system(style, system)]
        parts += [self._turn(style, number, role, text) for number, (role, text) in enumerate(turns)]
        return "".join(parts)

    def _system(self, style: Mapping[str, Any], system: str) -> str:
        prompt = self.system_template.replace("{system_message}", system)
        if not system and (not prompt or style.get("needs") == "message"):
            return self._filled(style.get("without", ""))
        return self._filled(style.get("system", ""), system=prompt)

    def _turn(self, style: Mapping[str, Any], number: int, role: str, text: str | None) -> str:
        answer = number % 2 == 1
        first = 1 if self.name.endswith("2") else 0  # one model of the numbered style counts from 1
        before = self._filled(style.get("round", ""), number=str(number // 2 + first)) if not answer else ""
        either = self.sep2 if answer else self.sep
        role = self.roles[number % 2] if style.get("alternates") else role
        if not text:  # FastChat treats an empty message as the requested answer
            form = style["open"] if answer or "answer" not in style else style["turn"].partition("{text}")[0]
            return before + self._filled(form, role=role)
        form = style.get("first", style["turn"]) if number == 0 else style["turn"]
        if answer:
            form = style.get("answer", style["turn"])
        text = text.strip() if style.get("trims") else text
        behind = style.get("behind", "") if answer else ""
        return before + self._filled(form, role=role, text=text, either=either) + behind

    def _filled(self, form: str, **slots: str) -> str:
        values = {"sep": self.sep, "sep2": self.sep2, **slots}
        return SLOT.sub(lambda found: values[found[1]], form)
