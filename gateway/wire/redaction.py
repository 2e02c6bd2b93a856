"""Removes texts that match the patterns of the setting ``redact`` from what is recorded or logged.

The library ``regex`` matches without Python's interpreter lock and stops after a time limit, so a pattern that takes
exponential time on a hostile text delays no call.
"""

from __future__ import annotations

import json
import re
import time
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from gateway.wire.json import dump_json
from gateway.wire.stored_events import make_events, named_events
from metatemplate.values.events import Event
from metatemplate.values.words import quoted, suggest

CALL_SECONDS = 1.0
"""The time limit for the texts of one call, in seconds of the processor."""
LOG_SECONDS = 0.02
"""The same for a text of the log, because the event loop waits for it."""
REDACTED = "[redacted]"
TOKEN_FIELDS = frozenset(
    {"logprobs", "top_logprobs", "prompt_logprobs", "token_ids", "prompt_token_ids", "tokens", "output_ids"}
)
"""Fields of an answer that contain its text token by token, where no pattern finds it."""

ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})')
"""A character as JSON escapes it in a string."""
Place = tuple[object, ...]
"""The place of a text in an event: the index of its choice, and the names and indexes on the way to the text."""
MAX_DECODED = 4
"""How many times escapes are decoded: arguments of a tool may be JSON in JSON in a text."""

PATTERNS: Mapping[str, str] = {
    # Matches may overlap: a run of 13 to 19 digits, and from each group of at least 3 digits on the groups after it.
    "card": r"(?<![0-9])[0-9](?:(?<![0-9][ -][0-9])(?:[ -]?[0-9]){12,18}(?![ -]?[0-9])"
    r"|[0-9]{2,18}(?:[ -][0-9]{3,19}){0,5}(?![0-9]))",
    "email": r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}",
    "iban": r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])",
    "ip": r"(?<![0-9]|[0-9]\.)(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9]|\.[0-9])",
    "phone": r"\+[0-9](?:[ ().-]{0,2}[0-9]){7,14}"
    r"|(?<![0-9])(?:\([0-9]{3}\) ?|[0-9]{3}[ .-])[0-9]{3}[ .-][0-9]{4}(?![0-9])",
    "secret": r"(?<![A-Za-z0-9])(?:"
    + "|".join(
        (
            r"sk-[A-Za-z0-9_-]{16,}",
            r"AKIA[0-9A-Z]{16}(?![A-Za-z0-9])",
            r"gh[pousr]_[A-Za-z0-9]{36,}",
            r"hf_[A-Za-z0-9]{30,}",
            r"xox[abprs]-[A-Za-z0-9-]{10,}",
            r"[Bb]earer [A-Za-z0-9._~+/=-]{16,}",
            r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}",
        )
    )
    + r")|-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----(?:[^-]|-(?!----[BE])){0,16384}"
    r"(?:-----END [A-Z ]{0,32}PRIVATE KEY-----)?",
}
"""Name of a built-in pattern → the pattern. ``card`` also needs the check digit of a card number.

A letter of another alphabet, or ``_``, may stand before a match: many languages write no space there.
"""


class RedactionTimeout(Exception):
    """The patterns took too long for a text."""


def compile_pattern(text: str) -> Any:
    """Return the pattern of a name of ``PATTERNS`` or of ``/regular expression/``. Raises ``ValueError`` with a phrase.

    Raises ``ImportError`` if the library is not installed.
    """
    import regex

    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        try:
            pattern = regex.compile(text[1:-1])
        except regex.error as error:
            raise ValueError(f"{quoted(text)} is not a regular expression: {error}") from None
        if pattern.search("") is not None:
            raise ValueError(f"{quoted(text)} matches the empty text; write a pattern of at least one character")
        return pattern
    if text not in PATTERNS:
        hint = suggest(text, PATTERNS)
        raise ValueError(f'"{text}" is not a built-in pattern{hint}; write a regular expression between slashes')
    return regex.compile(PATTERNS[text])


class Redactor:
    """The patterns of a configuration."""

    def __init__(self, patterns: Sequence[str], seconds: float = CALL_SECONDS) -> None:
        """``seconds``: the time limit for the texts of one call."""
        self._seconds = seconds
        self._patterns = tuple([(_card_length if one == "card" else len, compile_pattern(one)) for one in patterns])

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def log_text(self, text: str) -> str:
        """Return a text of the log, or the id of a row, without matches."""
        if not self._patterns:
            return text
        try:
            return Redaction(self._patterns, LOG_SECONDS).text(text)
        except RedactionTimeout:
            return REDACTED

    def begin(self) -> Redaction:
        """Return the redaction of one call."""
        return Redaction(self._patterns, self._seconds)


class Redaction:
    """The redaction of the texts of one call, in one thread.

    Every method raises ``RedactionTimeout`` after the time limit. A match is also found if JSON escapes characters of
    it, such as an ``@`` as ``\\u0040``, or the line break before it.
    """

    def __init__(self, patterns: Iterable[tuple[Callable[[str], int], Any]], seconds: float) -> None:
        """``patterns``: each with a function that returns the length of a match; 0: it is none after all."""
        self.found = 0
        """The number of texts that were replaced."""
        self._patterns = patterns
        self._names: dict[str, str] = {}
        """Name of a field, or digits of an integer → the same without matches."""
        self._deadline = time.thread_time() + seconds

    def text(self, text: str) -> str:
        """Return a text with ``REDACTED`` in place of each match."""
        return self.pieces([text])[0]

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """Return the pieces of one text without matches; a match may begin in one and end in another."""
        text = "".join(pieces)
        spans = self._spans(text)
        if not spans:
            return list(pieces)
        self.found += len(spans)
        characters = list(text)
        for begin, end in spans:
            characters[begin:end] = [REDACTED, *[""] * (end - begin - 1)]
        left = iter(characters)
        return ["".join(islice(left, len(piece))) for piece in pieces]

    def value(self, value: Any) -> Any:
        """Return a JSON value whose texts, integers, and names of fields, have no matches.

        A list of token ids becomes ``REDACTED``. A match may be divided over the texts of content parts.
        """
        if isinstance(value, str):
            return self.text(value)
        if type(value) is int:
            return self._integer(value)
        if isinstance(value, Mapping):
            return {self._name(name): self.value(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            if value and all(type(inner) is int for inner in value):
                self.found += 1
                return REDACTED
            return [self.value(inner) for inner in self._parts(value)]
        return value

    def _parts(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return a list without matches that are divided over the texts of content parts."""
        texts = [value["text"] for value in values if _is_text_part(value)]
        if len(texts) < 2:
            return values
        redacted = iter(self.pieces(texts))
        return [{**value, "text": next(redacted)} if _is_text_part(value) else value for value in values]

    def events(self, events: Iterable[Event]) -> tuple[Event, ...]:
        """Return the same number of events, without matches and without ``TOKEN_FIELDS``.

        The texts of all events at the same place of a choice are one text: that of an answer, its reasoning, or the
        arguments of one call of a tool.
        """
        rows = json.loads(dump_json(named_events(events)))
        texts: defaultdict[Place, list[str]] = defaultdict(list)

        def changed(change: Callable[[Place, str], object]) -> Iterator[tuple[str, dict[str, Any]]]:
            for kind, fields in rows:
                kept = [(name, value) for name, value in fields.items() if name not in TOKEN_FIELDS]
                yield kind, {name: self._changed(value, (fields.get("index"), name), change) for name, value in kept}

        list(changed(lambda place, text: texts[place].append(text)))
        clean = {place: iter(self.pieces(found)) for place, found in texts.items()}
        return make_events(changed(lambda place, text: next(clean[place])))

    def _name(self, name: str) -> str:
        """Return the name of a field, or the digits of an integer, without matches."""
        if name not in self._names:
            self._names[name] = self.text(name)
        return self._names[name]

    def _changed(self, value: Any, place: Place, change: Callable[[Place, str], object]) -> Any:
        """Return a part of an event with other texts, and without matches in integers and names of fields.

        An entry of a list is known by its ``index``, as the calls of tools are in a stream, or by its position.
        """
        if isinstance(value, str):
            return change(place, value)
        if isinstance(value, dict):
            return {
                self._name(name): self._changed(inner, (*place, name), change)
                if type(inner) is not int
                else self._integer(inner)
                for name, inner in value.items()
                if name not in TOKEN_FIELDS
            }
        if not isinstance(value, list):
            return value
        known = [one.get("index") if isinstance(one, dict) else None for one in value]
        names = [index if isinstance(index, int) else at for at, index in enumerate(known)]
        return [self._changed(one, (*place, name), change) for one, name in zip(value, names, strict=True)]

    def _integer(self, value: int) -> int | str:
        return value if self._name(str(value)) == str(value) else REDACTED

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Return the begin and the end of each match, in order; matches that overlap are one.

        A part of an escape is never replaced without the rest.
        """
        begins: Sequence[int] = range(len(text) + 1)
        """The place in the text of each decoded character, and of the end."""
        spans = self._search(text)
        for _ in range(MAX_DECODED):
            encoded = text
            text, begins = self._decode(text, begins)
            if text == encoded:
                break
            spans += [(begins[begin], begins[end]) for begin, end in self._search(text)]
        spans = [(begins[bisect_right(begins, one) - 1], begins[bisect_left(begins, end)]) for one, end in spans]
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(spans):
            if merged and begin < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return merged

    def _search(self, text: str) -> list[tuple[int, int]]:
        """Return the begin and the end of each match in the text as it is."""
        spans: list[tuple[int, int]] = []
        try:
            for length, pattern in self._patterns:
                overlapped = length is _card_length
                for match in pattern.finditer(text, overlapped=overlapped, timeout=self._left(), concurrent=True):
                    if size := length(match[0]):
                        spans.append((match.start(), match.start() + size))
                    self._left()
        except TimeoutError:
            raise RedactionTimeout from None
        return spans

    def _decode(self, text: str, begins: Sequence[int]) -> tuple[str, Sequence[int]]:
        """Return the text with decoded escapes, and ``begins`` without the rest of each escape."""
        decoded, kept, at = "", array("q"), 0
        for escape in ESCAPE.finditer(text):
            self._left()
            decoded += text[at : escape.start()] + json.loads(f'"{escape[0]}"')
            kept.extend(begins[at : escape.start() + 1])
            at = escape.end()
        if not at:
            return text, begins
        kept.extend(begins[at:])
        return decoded + text[at:], kept

    def _left(self) -> float:
        """Return the seconds that are left."""
        if (left := self._deadline - time.thread_time()) <= 0:
            raise RedactionTimeout
        return left


def _is_text_part(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("text"), str)


def _card_length(text: str) -> int:
    """Return the length of the longest card number at the beginning of groups of digits; 0: none. It ends with a group.

    A card number has 13 to 19 digits; the last one is its check digit (ISO/IEC 7812-1).
    """
    ends = [match.end() for match in re.finditer("[0-9]+", text)]
    return max((end for end in ends if _is_card(text[:end])), default=0)


def _is_card(text: str) -> bool:
    digits = [int(one) for one in reversed(text) if one.isdigit()]
    return 13 <= len(digits) <= 19 and sum(digits[::2]) % 10 == -sum([2 * n - 9 * (n > 4) for n in digits[1::2]]) % 10


NOTHING = Redactor(())
