"""Where does each piece of a rendered text come from? Found when somebody asks, by rendering once more.

A template is a program, so nobody can tell from its text alone what the client wrote. Each text of the request is
replaced by a stand-in that nobody could have written (a number drawn for this trace: digits stay digits in JSON and
in capitals), the template runs again, and the stand-ins show where the texts went. The two renderings are then laid
side by side, byte for byte. If they do not agree, the template has looked at the very words it was given (it cut
them, counted them, compared them), and nothing is claimed: the whole text is then one piece of origin ``mixed``, as
if the client had written it.

Blanks around a text stay where they are, because templates trim. So do, in a second attempt, the words that the
template itself knows (``</think>``, on which it splits); such a word counts as the client's unless it was certainly
not his.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from gateway.core.errors import GatewayError
from gateway.core.prompt import Segment

KEPT_KEYS = frozenset({"role", "type"})
"""What templates compare and hardly ever print; a plain word there says nothing of its own."""
SCHEMA_KEYS = frozenset({
    "role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "thinking", "type",
    "text", "id", "function", "arguments", "description", "parameters", "strict", "properties", "required", "items",
    "enum",
    "title", "default", "additionalProperties", "anyOf", "oneOf", "allOf", "format", "nullable", "minimum", "maximum",
    "$defs", "$ref", "const",
})  # fmt: skip
"""Keys of a message, of a tool and of JSON Schema, which say nothing of a client's own."""
PLAIN_WORD = re.compile(r"[a-z_]{1,32}")

DIGITS = 8
"""Of the part of a stand-in that tells which it is; no request has so many texts."""

WHOLE = "mixed"
"""The origin of a text nobody can take apart."""

Render = Callable[[Mapping[str, Any]], str]
"""A rendering of other variables with the same template. Raises ``GatewayError``."""

WRITTEN: tuple[Callable[[str], str], ...] = (
    str,
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(text)[1:-1],
    str.upper,
    str.lower,
    str.title,
    str.capitalize,
    lambda text: text.replace("\n", " "),
)
"""How a template writes a text: as it is, within JSON, in other letters, on one line."""


@dataclass(frozen=True, slots=True)
class _Stood:
    """What a stand-in stands for."""

    text: str
    origin: str
    role: str


class _StandIns:
    """Replaces the texts of a request, and remembers which."""

    def __init__(self, reads: frozenset[str], known: Sequence[str]) -> None:
        """``reads``: keys that the template looks up. ``known``: words of the template that stay where they are."""
        self._keys = reads | SCHEMA_KEYS
        longest_first = sorted([word for word in known if len(word) > 1 and word.strip()], key=len, reverse=True)
        self._known = re.compile("|".join([f"({re.escape(word)})" for word in longest_first]) or "(?!)")
        self._drawn = str(secrets.randbelow(10**20)).zfill(20)
        self._numbers = count()
        self.shape = re.compile(self._drawn + f"([0-9]{{{DIGITS}}})")
        self.stood: dict[str, _Stood] = {}
        self.kept: set[str] = set()
        """Known words that stand in texts of the client."""

    def replaced(self, value: Any, origin: str, role: str, key: str = "") -> Any:
        """The value with a stand-in for each text in it."""
        if isinstance(value, str):
            return value if key in KEPT_KEYS and PLAIN_WORD.fullmatch(value) else self._text(value, origin, role)
        if isinstance(value, Mapping):
            # Numbered in their order, so that sorted keys come out in the same order.
            keys = {name: self.key(name, origin, role) for name in sorted(value)}
            return {keys[name]: self.replaced(one, origin, role, name) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.replaced(one, origin, role, key) for one in value]
        return value

    def key(self, name: str, origin: str, role: str) -> str:
        """The key, unless it is a word of the client's."""
        return name if name in self._keys else self._text(name, origin, role)

    def _text(self, text: str, origin: str, role: str) -> str:
        parts: list[str] = []
        at = 0
        for word in self._known.finditer(text):
            self.kept.add(word[0])
            parts += [self._one(text[at : word.start()], origin, role), word[0]]
            at = word.end()
        return "".join(parts) + self._one(text[at:], origin, role)

    def _one(self, text: str, origin: str, role: str) -> str:
        core = text.strip()
        if not core:
            return text
        number = str(next(self._numbers)).zfill(DIGITS)
        self.stood[number] = _Stood(core, origin, role)
        before = text.index(core)
        return text[:before] + self._drawn + number + text[before + len(core) :]


def segments_of(
    text: str,
    variables: Mapping[str, Any],
    asked: Collection[str],
    reads: frozenset[str],
    words: Sequence[str],
    kept: Sequence[str],
    render: Render,
) -> tuple[Segment, ...]:
    """The pieces of ``text``, which ``render(variables)`` gave.

    ``asked``: variables that the request has set. ``reads``: keys that the template looks up by name.
    ``words``: those the template knows. ``kept``: those that have to stay in any case.
    """
    for known in (kept, [*kept, *words]):
        stand_ins = _StandIns(reads, known)
        try:
            traced = render(_replaced(variables, asked, stand_ins))
        except GatewayError:
            continue  # the template refuses the stand-ins: it has looked at the words
        found = _aligned(text, traced, stand_ins)
        if found is not None:
            return tuple(_generating(found, text, variables, render))
    return (Segment(text, "", WHOLE, False),)


def _replaced(variables: Mapping[str, Any], asked: Collection[str], stand_ins: _StandIns) -> Mapping[str, Any]:
    return {
        **variables,
        **{name: stand_ins.replaced(variables[name], f"chat_template_kwargs.{name}", "") for name in asked},
        "messages": [
            {
                stand_ins.key(name, f"messages[{number}]", message["role"]): stand_ins.replaced(
                    value, f"messages[{number}]", message["role"], name
                )
                for name, value in message.items()
            }
            for number, message in enumerate(variables["messages"])
        ],
        **{
            name: [stand_ins.replaced(one, f"{name}[{place}]", "") for place, one in enumerate(variables[name])]
            for name in ("tools", "documents")
            if isinstance(variables.get(name), (list, tuple))
        },
    }


def _aligned(text: str, traced: str, stand_ins: _StandIns) -> list[Segment] | None:
    """Both renderings side by side; None if they say different things."""
    pieces = stand_ins.shape.split(traced)  # scaffold, number, scaffold, number, …, scaffold
    if not text.startswith(pieces[0]):
        return None
    found = list(_scaffold(pieces[0], stand_ins.kept))
    at = len(pieces[0])
    for number, after in zip(pieces[1::2], pieces[2::2], strict=True):
        stood = stand_ins.stood.get(number)
        if stood is None:
            return None
        for write in WRITTEN:
            written = write(stood.text)
            if text.startswith(written + after, at):
                break
        else:
            return None
        found.append(Segment(written, stood.role, stood.origin, False))
        found += _scaffold(after, stand_ins.kept)
        at += len(written) + len(after)
    return _joined(found) if at == len(text) else None


def _scaffold(text: str, kept: set[str]) -> Iterator[Segment]:
    """What the template wrote; known words that the client wrote too may be his, so they count as such."""
    at = 0
    for word in re.finditer("|".join([re.escape(one) for one in sorted(kept, key=len, reverse=True)]) or "(?!)", text):
        if word.start() > at:
            yield Segment(text[at : word.start()], "", "template", True)
        yield Segment(word[0], "", WHOLE, False)
        at = word.end()
    if at < len(text):
        yield Segment(text[at:], "", "template", True)


def _joined(found: list[Segment]) -> list[Segment]:
    """Neighbours of one origin are one piece; a known word between two pieces of one text belongs to it."""
    joined: list[Segment] = []
    for place, one in enumerate(found):
        if one.origin == WHOLE and joined and place + 1 < len(found):
            before, after = joined[-1], found[place + 1]
            if not before.scaffold and before.origin == after.origin != WHOLE:
                one = Segment(one.text, before.role, before.origin, False)
        if joined and (joined[-1].origin, joined[-1].role) == (one.origin, one.role):
            joined[-1] = Segment(joined[-1].text + one.text, one.role, one.origin, one.scaffold)
        else:
            joined.append(one)
    return joined


def _generating(found: list[Segment], text: str, variables: Mapping[str, Any], render: Render) -> Iterator[Segment]:
    """The last piece of scaffold in two, where the model's turn begins."""
    last = found[-1] if found else None
    if last is None or not last.scaffold or not variables["add_generation_prompt"]:
        yield from found
        return
    try:
        without = render({**variables, "add_generation_prompt": False})
    except GatewayError:
        without = text
    opening = text[len(without) :] if text.startswith(without) else ""
    yield from found[:-1]
    if not opening or len(opening) > len(last.text):
        yield last
        return
    if len(opening) < len(last.text):
        yield Segment(last.text[: -len(opening)], "", "template", True)
    yield Segment(opening, "", "generate", True)
