"""Joins lone UTF-16 surrogates (halves of a character) across deltas, or replaces them by U+FFFD.

An engine that streams UTF-16 units sends ``"\\ud83d"`` in one delta and ``"\\ude00"`` in the next
(``docs/spec/reliability.md`` C13). orjson refuses such input, so the standard library parses it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

BACKSLASH = ord("\\")
REPLACEMENT = "\ufffd"
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_UNIT = re.compile(r"[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def maybe_lone(data: bytes) -> bool:
    """Return whether JSON may contain a lone surrogate. JSON can contain a lone surrogate only as an escape."""
    # Most bodies have no escape, so that is tested first: for a number, ``in`` is ten times as fast as for bytes.
    return BACKSLASH in data and (b"\\ud" in data or b"\\uD" in data)


def loads(data: bytes) -> Any:
    """Return the JSON value in ``data``. Lone surrogates are allowed. Numbers are always read by orjson.

    Raises ``ValueError`` (or its subclass ``json.JSONDecodeError``) for invalid JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if not maybe_lone(data):
            raise
    try:
        return json.loads(data.decode(), parse_constant=orjson.loads, parse_float=orjson.loads, parse_int=orjson.loads)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def replace_lone(value: Any) -> Any:
    """Return a copy of a JSON value with lone surrogates replaced. Use for strings that no later delta completes."""
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

    def feed(self, text: str) -> str:
        """Return ``text`` with whole characters only. A high surrogate at the end is held for the next call."""
        if not text or (not self._held and (text.isascii() or not _SURROGATE.search(text))):
            return text
        text = self._held + text
        self._held = text[-1] if 0xD800 <= ord(text[-1]) <= 0xDBFF else ""
        return _UNIT.sub(_whole, text[:-1] if self._held else text)

    def flush(self) -> str:
        """Return U+FFFD if a high surrogate is held, otherwise an empty text. Call when the text has ended."""
        held, self._held = self._held, ""
        return REPLACEMENT if held else ""


def _whole(match: re.Match[str]) -> str:
    """Return the character of a surrogate pair, or U+FFFD for a lone surrogate."""
    units = match.group()
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le") if len(units) == 2 else REPLACEMENT
