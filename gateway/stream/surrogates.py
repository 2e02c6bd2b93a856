"""Joins lone UTF-16 surrogates (halves of a character) across deltas, or replaces them by U+FFFD.

An engine that streams UTF-16 units sends ``"\\ud83d"`` in one delta and ``"\\ude00"`` in the next
(``docs/spec/reliability.md`` C13). orjson refuses such input, so the standard library parses it.
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
    """True if this JSON may contain a lone surrogate, which can only be written as an escape."""
    return b"\\" in data and (b"\\ud" in data or b"\\uD" in data)  # most bodies have no escape, so test that first


def loads(data: bytes) -> Any:
    """The JSON value in ``data``, in which lone surrogates are allowed. Numbers are always read by orjson.

    Raises ``ValueError``, which includes ``json.JSONDecodeError``.
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
    """A copy of a JSON value with all lone surrogates replaced, for strings that no later delta completes."""
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
        """True: a high surrogate is held, so the next text must be passed to ``feed``."""
        return bool(self._held)

    def feed(self, text: str) -> str:
        """``text`` with whole characters only. A high surrogate at the end of ``text`` is held for the next call."""
        if not text or (not self._held and (text.isascii() or not _SURROGATE.search(text))):
            return text
        text = self._held + text
        self._held = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        return _UNIT.sub(_whole, text[:-1] if self._held else text)

    def flush(self) -> str:
        """Call when the text has ended. Returns U+FFFD if a high surrogate is held."""
        held, self._held = self._held, ""
        return REPLACEMENT if held else ""


def _whole(match: re.Match[str]) -> str:
    """The character of a surrogate pair, or U+FFFD for a lone surrogate."""
    units = match.group()
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le") if len(units) == 2 else REPLACEMENT
