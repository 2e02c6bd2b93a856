"""Removes texts that match the patterns of the setting ``redact`` from what is recorded or logged.

The library ``regex`` matches without Python's interpreter lock and stops after a time limit, so a pattern that takes
exponential time on a hostile text delays no call.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gateway.core.events import Event
from gateway.core.words import suggest
from gateway.wire.stored_events import dump_json, load_events, named_events

SECONDS = 1.0
"""The time limit for the texts of one call, in seconds of the processor."""
LOG_SECONDS = 0.02
"""The same for a text of the log, because the event loop waits for it."""
REDACTED = "[redacted]"
TOKEN_FIELDS = frozenset({"logprobs", "top_logprobs", "prompt_logprobs", "token_ids", "prompt_token_ids"})
"""Fields of an answer that contain its text token by token, where no pattern finds it."""

PATTERNS: Mapping[str, str] = {
    "card": r"(?<![0-9])(?:[0-9][ -]?){12,18}[0-9](?![0-9])",
    "email": r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}",
    "iban": r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b",
    "ip": r"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9.])",
    "phone": r"\+[0-9](?:[ ().-]{0,2}[0-9]){7,14}"
    r"|(?<![0-9])(?:\([0-9]{3}\) ?|[0-9]{3}[ .-])[0-9]{3}[ .-][0-9]{4}(?![0-9])",
    "secret": "|".join(
        (
            r"\bsk-[A-Za-z0-9_-]{16,}",
            r"\bAKIA[0-9A-Z]{16}\b",
            r"\bgh[pousr]_[A-Za-z0-9]{36,}",
            r"\bhf_[A-Za-z0-9]{30,}",
            r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
            r"\b[Bb]earer [A-Za-z0-9._~+/=-]{16,}",
            r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}",
            r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----[^-]{0,16384}(?:-----END [A-Z ]{0,32}PRIVATE KEY-----)?",
        )
    ),
}
"""Name of a built-in pattern → the pattern. ``card`` also needs the check digit of a card number."""


class RedactionTimeout(Exception):
    """The patterns took too long for a text."""


def compile_pattern(text: str) -> Any:
    """The pattern of a name of ``PATTERNS`` or of ``/regular expression/``. Raises ``ValueError`` with a phrase.

    Raises ``ImportError`` if the library is not installed.
    """
    import regex

    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        try:
            pattern = regex.compile(text[1:-1])
        except regex.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        if pattern.search("") is not None:
            raise ValueError("matches the empty text; write a pattern of at least one character")
        return pattern
    if text not in PATTERNS:
        hint = suggest(text, PATTERNS)
        raise ValueError(f'"{text}" is not a built-in pattern{hint}; write a regular expression between slashes')
    return regex.compile(PATTERNS[text])


class Redactor:
    """The patterns of a configuration."""

    def __init__(self, patterns: Sequence[str], seconds: float = SECONDS) -> None:
        """``seconds``: the time limit for the texts of one call."""
        self._seconds = seconds
        self._patterns = tuple([(_is_card if one == "card" else _is_any, compile_pattern(one)) for one in patterns])

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def log_text(self, text: str) -> str:
        """A text of the log without matches."""
        if not self._patterns:
            return text
        try:
            return Redaction(self._patterns, LOG_SECONDS).text(text)
        except RedactionTimeout:
            return REDACTED

    def begin(self) -> Redaction:
        """The redaction of one call."""
        return Redaction(self._patterns, self._seconds)


class Redaction:
    """The redaction of the texts of one call. Every method raises ``RedactionTimeout`` after the time limit."""

    def __init__(self, patterns: Iterable[tuple[Callable[[str], bool], Any]], seconds: float) -> None:
        self.found = 0
        """The number of texts that were replaced."""
        self._patterns = patterns
        self._deadline = time.monotonic() + seconds

    def text(self, text: str) -> str:
        """A text with ``REDACTED`` in place of each match."""
        return self.pieces([text])[0]

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """The pieces of one text; a match may begin in one and end in another."""
        spans = self._spans("".join(pieces))
        if not spans:
            return list(pieces)
        self.found += len(spans)
        redacted: list[str] = []
        begin = number = 0
        for piece in pieces:
            end, at, kept = begin + len(piece), begin, ""
            while number < len(spans) and spans[number][0] < end:
                first, last = spans[number]
                if first >= begin:
                    kept += piece[at - begin : first - begin] + REDACTED
                at = min(last, end)
                if last > end:  # the match goes on in the next piece
                    break
                number += 1
            redacted.append(kept + piece[at - begin :])
            begin = end
        return redacted

    def value(self, value: Any) -> Any:
        """A JSON value whose texts, and names of fields, have no matches. A list of token ids becomes ``REDACTED``."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name): self.value(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            if value and all(type(inner) is int for inner in value):
                self.found += 1
                return REDACTED
            return [self.value(inner) for inner in value]
        return value

    def events(self, events: Iterable[Event]) -> tuple[Event, ...]:
        """The same number of events, without matches and without ``TOKEN_FIELDS``.

        The texts of all events at the same place of a choice are one text: that of an answer, its reasoning, or the
        arguments of one call of a tool.
        """
        found = [(name, _without(fields)) for name, fields in json.loads(dump_json(named_events(events)))]
        places: defaultdict[object, list[tuple[Any, Any]]] = defaultdict(list)
        for _, fields in found:
            for place, holder, key in _texts(fields, (fields.get("index"),)):
                places[place].append((holder, key))
        for texts in places.values():
            for (holder, key), text in zip(texts, self.pieces([holder[key] for holder, key in texts]), strict=True):
                holder[key] = text
        return load_events(dump_json(found))

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """The begin and the end of each match, in order; matches that overlap are one."""
        spans: list[tuple[int, int]] = []
        try:
            for accepts, pattern in self._patterns:
                left = max(0.001, self._deadline - time.monotonic())
                for match in pattern.finditer(text, timeout=left, concurrent=True):
                    if accepts(match[0]) and match[0]:
                        spans.append(match.span())
        except TimeoutError:
            raise RedactionTimeout from None
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(spans):
            if merged and begin < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return merged


def _without(value: Any) -> Any:
    """A JSON value without ``TOKEN_FIELDS``."""
    if isinstance(value, dict):
        return {name: _without(inner) for name, inner in value.items() if name not in TOKEN_FIELDS}
    return [_without(inner) for inner in value] if isinstance(value, list) else value


def _texts(value: Any, place: tuple[object, ...]) -> Iterator[tuple[object, Any, Any]]:
    """The place of each text in a value, the object or list that holds it, and its key there.

    An entry of a list is known by its ``index``, as the calls of tools are in a stream, or by its position.
    """
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    for key, inner in entries:
        index = inner.get("index") if isinstance(value, list) and isinstance(inner, dict) else None
        name = index if isinstance(index, int) else key
        if isinstance(inner, str):
            yield (*place, name), value, key
        else:
            yield from _texts(inner, (*place, name))


def _is_any(text: str) -> bool:
    return True


def _is_card(text: str) -> bool:
    """Whether the last digit of a number is its check digit (ISO/IEC 7812-1)."""
    digits = [int(one) for one in reversed(text) if one.isdigit()]
    return sum(digits[::2]) % 10 == -sum([2 * one - 9 * (one > 4) for one in digits[1::2]]) % 10


NOTHING = Redactor(())
