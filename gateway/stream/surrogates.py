"""What if an upstream cuts a character in half? JSON strings may carry lone UTF-16 surrogates.

An engine that streams UTF-16 units sends ``"\\ud83d"`` in one delta and ``"\\ude00"`` in the next
(``specs/reliability.md`` C13). orjson refuses such input, and no such string can be written out again.
So: read them with the standard library, join the pairs, replace what stays alone.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import orjson

LONGEST = 19
"""Characters of an integer: all of them fit 64 bits, and orjson can write them."""
REPLACEMENT = "\ufffd"
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNIT = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def maybe_lone(data: bytes) -> bool:
    """May there be half a character in this JSON? Only an escape can bring one."""
    return b"\\ud" in data or b"\\uD" in data


def loads(data: bytes) -> Any:
    """The JSON value in ``data``, lone surrogates included; as strict as orjson otherwise.

    Raises ``ValueError`` (``json.JSONDecodeError`` among them): the caller knows whether it was a stream or an answer.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if not maybe_lone(data):  # all else is orjson's to judge
            raise
    try:
        return json.loads(data.decode(), parse_constant=_refuse, parse_float=_finite, parse_int=_exact)
    except RecursionError:
        raise ValueError("JSON nests too deeply") from None


def replace_lone(value: Any) -> Any:
    """The same JSON value with every string fit for UTF-8; for strings that no later delta completes."""
    if isinstance(value, str):
        joiner = SurrogateJoiner()
        return joiner.feed(value) + joiner.flush()
    if isinstance(value, list):
        return [replace_lone(item) for item in value]
    if isinstance(value, dict):
        return {replace_lone(key): replace_lone(item) for key, item in value.items()}
    return value


class SurrogateJoiner:
    """Makes one choice's text whole: joins pairs across deltas, replaces lone surrogates by U+FFFD."""

    __slots__ = ("_held", "replaced")

    def __init__(self) -> None:
        self._held = ""
        self.replaced = 0
        """How many lone surrogates were replaced so far."""

    @property
    def pending(self) -> bool:
        """A high surrogate is held back, so the next text must pass through here."""
        return bool(self._held)

    def feed(self, text: str) -> str:
        """``text`` with whole characters only; a high surrogate at its end waits for the next call."""
        if not text or (not self._held and (text.isascii() or not _SURROGATE.search(text))):
            return text
        text = self._held + text
        self._held = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        return _UNIT.sub(self._whole, text[:-1] if self._held else text)

    def flush(self) -> str:
        """The end of the text: a high surrogate that still waits stays alone."""
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
