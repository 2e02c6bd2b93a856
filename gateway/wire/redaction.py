"""Removes texts that match the patterns of the setting ``redact`` from what is recorded or logged.

The library ``regex`` matches without Python's interpreter lock and stops after a time limit, so a pattern that takes
exponential time on a hostile text delays no call.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from gateway.core.events import Event
from gateway.core.words import quoted, suggest
from gateway.wire.stored_events import dump_json, make_events, named_events

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
    """The pattern of a name of ``PATTERNS`` or of ``/regular expression/``. Raises ``ValueError`` with a phrase.

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
        """A text of the log, or the id of a row, without matches."""
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
        """A JSON value whose texts, integers, and names of fields, have no matches.

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
        """A list without matches that are divided over the texts of content parts."""
        texts = [value["text"] for value in values if _is_text_part(value)]
        if len(texts) < 2:
            return values
        redacted = iter(self.pieces(texts))
        return [{**value, "text": next(redacted)} if _is_text_part(value) else value for value in values]

    def events(self, events: Iterable[Event]) -> tuple[Event, ...]:
        """The same number of events, without matches and without ``TOKEN_FIELDS``.

        The texts of all events at the same place of a choice are one text: that of an answer, its reasoning, or the
        arguments of one call of a tool.
        """
        found = [
            (kind, {name: self._fields(value) for name, value in fields.items() if name not in TOKEN_FIELDS})
            for kind, fields in json.loads(dump_json(named_events(events)))
        ]
        places: defaultdict[object, list[tuple[Any, Any]]] = defaultdict(list)
        for _, fields in found:
            for place, holder, key in _texts(fields, (fields.get("index"),)):
                places[place].append((holder, key))
        for texts in places.values():
            for (holder, key), text in zip(texts, self.pieces([holder[key] for holder, key in texts]), strict=True):
                holder[key] = text
        return make_events(found)

    def _name(self, name: str) -> str:
        """The name of a field, or the digits of an integer, without matches."""
        if name not in self._names:
            self._names[name] = self.text(name)
        return self._names[name]

    def _fields(self, value: Any) -> Any:
        """A field of an event without ``TOKEN_FIELDS``, and without matches in integers and names of fields."""
        if isinstance(value, dict):
            return {
                self._name(name): self._integer(inner) if type(inner) is int else self._fields(inner)
                for name, inner in value.items()
                if name not in TOKEN_FIELDS
            }
        return [self._fields(inner) for inner in value] if isinstance(value, list) else value

    def _integer(self, value: int) -> int | str:
        return value if self._name(str(value)) == str(value) else REDACTED

    def _spans(self, text: str, escaped: int = MAX_DECODED) -> list[tuple[int, int]]:
        """The begin and the end of each match, in order; matches that overlap are one.

        ``escaped``: how many times escapes are decoded. A part of an escape is never replaced without the rest.
        """
        spans = self._search(text)
        if escaped and "\\" in text:
            decoded, escapes = self._decode(text)
            if escapes:
                spans = [_whole(escapes, span) for span in spans]
                spans += [_encoded(escapes, span) for span in self._spans(decoded, escaped - 1)]
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(spans):
            if merged and begin < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return merged

    def _search(self, text: str) -> list[tuple[int, int]]:
        """The begin and the end of each match in the text as it is."""
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

    def _decode(self, text: str) -> tuple[str, list[tuple[int, int, int]]]:
        """The text with decoded escapes; and the begin, the end, and the position after decoding, of each escape."""
        escapes: list[tuple[int, int, int]] = []
        left_out = 0

        def decoded(match: re.Match[str]) -> str:
            nonlocal left_out
            self._left()
            character: str = json.loads(f'"{match[0]}"')
            escapes.append((*match.span(), match.start() - left_out))
            left_out += len(match[0]) - 1
            return character

        return ESCAPE.sub(decoded, text), escapes

    def _left(self) -> float:
        """The seconds that are left."""
        if (left := self._deadline - time.thread_time()) <= 0:
            raise RedactionTimeout
        return left


def _is_text_part(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("text"), str)


def _whole(escapes: Sequence[tuple[int, int, int]], span: tuple[int, int]) -> tuple[int, int]:
    """A span that also has the rest of the escapes in which it begins and ends."""
    begin, end = span
    before = bisect_left(escapes, begin, key=itemgetter(0))
    if before and begin < escapes[before - 1][1]:
        begin = escapes[before - 1][0]
    before = bisect_left(escapes, end, key=itemgetter(0))
    return begin, max(end, escapes[before - 1][1]) if before else end


def _encoded(escapes: Sequence[tuple[int, int, int]], span: tuple[int, int]) -> tuple[int, int]:
    """The span of the text before its escapes were decoded."""
    befores = [bisect_left(escapes, at, key=itemgetter(2)) for at in span]
    begin, end = [
        at if not before else at - escapes[before - 1][2] - 1 + escapes[before - 1][1]
        for at, before in zip(span, befores, strict=True)
    ]
    return begin, end


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


def _card_length(text: str) -> int:
    """The length of the longest card number at the beginning of groups of digits, up to the end of a group; 0: none.

    A card number has 13 to 19 digits; the last one is its check digit (ISO/IEC 7812-1).
    """
    ends = [match.end() for match in re.finditer("[0-9]+", text)]
    return max((end for end in ends if _is_card(text[:end])), default=0)


def _is_card(text: str) -> bool:
    digits = [int(one) for one in reversed(text) if one.isdigit()]
    return 13 <= len(digits) <= 19 and sum(digits[::2]) % 10 == -sum([2 * n - 9 * (n > 4) for n in digits[1::2]]) % 10


NOTHING = Redactor(())
