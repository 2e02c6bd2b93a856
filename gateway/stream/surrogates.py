"""Lone UTF-16 surrogates in JSON strings: halves of a character, joined across deltas or replaced by U+FFFD.

An engine that streams UTF-16 units sends ``"\\ud83d"`` in one delta and ``"\\ude00"`` in the next
(``docs/spec/reliability.md`` C13). orjson refuses such input, so it is parsed with the standard library.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import orjson

LONGEST = 19
"""Characters of an integer that always fits 64 bits, as orjson requires."""
REPLACEMENT = "\ufffd"
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNIT = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def maybe_lone(data: bytes) -> bool:
    """True if this JSON may hold a lone surrogate, which only an escape can express."""
    return b"\\" in data and (b"\\ud" in data or b"\\uD" in data)  # most bodies have no escape: one quick scan


def loads(data: bytes) -> Any:
    """The JSON value in ``data``, lone surrogates included; as strict as orjson otherwise.

    Raises ``ValueError``; ``json.JSONDecodeError`` is one.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if not maybe_lone(data):
            raise
    try:
        return json.loads(data.decode(), parse_constant=_refuse, parse_float=_finite, parse_int=_exact)
    except RecursionError:
        raise ValueError("JSON nests too deeply") from None


def replace_lone(value: Any) -> Any:
    """The same JSON value with every lone surrogate replaced; for strings that no later delta completes."""
    if isinstance(value, str):
        joiner = SurrogateJoiner()
        return joiner.feed(value) + joiner.flush()
    if isinstance(value, list):
        return [replace_lone(item) for item in value]
    if isinstance(value, dict):
        return {replace_lone(key): replace_lone(item) for key, item in value.items()}
    return value


class SurrogateJoiner:
    """Joins surrogate pairs of one choice's text across deltas, and replaces lone surrogates by U+FFFD."""

    __slots__ = ("_held", "replaced")

    def __init__(self) -> None:
        self._held = ""
        self.replaced = 0
        """Number of lone surrogates replaced."""

    @property
    def pending(self) -> bool:
        """True: a high surrogate is held, so the next text must be fed too."""
        return bool(self._held)

    def feed(self, text: str) -> str:
        """``text`` with whole characters only; a high surrogate at its end is held for the next call."""
        if not text or (not self._held and (text.isascii() or not _SURROGATE.search(text))):
            return text
        text = self._held + text
        self._held = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        return _UNIT.sub(self._whole, text[:-1] if self._held else text)

    def flush(self) -> str:
        """The held high surrogate, replaced, when the text has ended."""
        held, self._held = self._held, ""
        return _UNIT.sub(self._whole, held)

    def _whole(self, match: re.Match[str]) -> str:
        units = match.group()
        if len(units) == 2:
            return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        self.replaced += 1
        return REPLACEMENT


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _exact(digits: str) -> int:
    if len(digits) > LONGEST:
        raise ValueError("an integer is out of range")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError("a number is out of range")
    return value
