"""Lone UTF-16 surrogates in JSON strings: halves of a character, joined across deltas or replaced by U+FFFD.

An engine that streams UTF-16 units sends ``"\\ud83d"`` in one delta and ``"\\ude00"`` in the next
(``docs/spec/reliability.md`` C13). orjson refuses such input, so it is parsed with the standard library.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

REPLACEMENT = "\ufffd"
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNIT = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def maybe_lone(data: bytes) -> bool:
    """True if this JSON may hold a lone surrogate, which only an escape can express."""
    return b"\\" in data and (b"\\ud" in data or b"\\uD" in data)  # most bodies have no escape: one quick scan


def loads(data: bytes) -> Any:
    """The JSON value in ``data``, lone surrogates included; numbers are read by orjson in any case.

    Raises ``ValueError``; ``json.JSONDecodeError`` is one.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if not maybe_lone(data):
            raise
    try:
        return json.loads(data.decode(), parse_constant=orjson.loads, parse_float=orjson.loads, parse_int=orjson.loads)
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

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

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
        return _UNIT.sub(_whole, text[:-1] if self._held else text)

    def flush(self) -> str:
        """The held high surrogate, replaced, when the text has ended."""
        held, self._held = self._held, ""
        return REPLACEMENT if held else ""


def _whole(match: re.Match[str]) -> str:
    """A surrogate pair's character, or the replacement of a lone surrogate."""
    units = match.group()
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le") if len(units) == 2 else REPLACEMENT
