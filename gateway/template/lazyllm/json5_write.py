"""How does the reference write tools and arguments? As JSON5 on one line (``specs/lazyllm.md`` 7)."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gateway.template.lazyllm.errors import PrompterError

RESERVED = frozenset(
    [
        "break", "case", "catch", "class", "const", "continue", "debugger", "default", "delete", "do", "else",
        "enum", "export", "extends", "false", "finally", "for", "function", "if", "import", "in", "instanceof",
        "new", "null", "return", "super", "switch", "this", "throw", "true", "try", "typeof", "var", "void",
        "while", "with",
    ]
)  # fmt: skip
"""Words that are no bare key."""

FIRST = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl"})
"""Unicode categories that begin an identifier."""
FURTHER = FIRST | {"Nd", "Mn", "Mc", "Pc"}

ESCAPES = str.maketrans(
    {
        "\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\b": "\\b", "\f": "\\f", "\t": "\\t", "\v": "\\v",
        "\0": "\\0", "\u2028": "\\u2028", "\u2029": "\\u2029",
    }
)  # fmt: skip

KNOWN_LENGTH = 64
"""Characters of a key that is remembered: keys come from clients."""

CONSTANTS: Mapping[Any, str] = {None: "null", True: "true", False: "false"}


def write_json5(value: Any) -> str:
    """The value as JSON5, bytes as the reference's library writes them. Raises PrompterError for what JSON has not."""
    if isinstance(value, str):
        return f'"{value.translate(ESCAPES)}"'
    if value is None or isinstance(value, bool):
        return CONSTANTS[value]
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join([f"{_key(key)}: {write_json5(entry)}" for key, entry in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([write_json5(entry) for entry in value]) + "]"
    raise PrompterError("TypeError", f"{value!r} is not JSON serializable")


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return float.__repr__(value)


def _key(key: Any) -> str:
    text = key if isinstance(key, str) else write_json5(key)
    return text if (is_bare(text) if len(text) <= KNOWN_LENGTH else _bare(text)) else f'"{text.translate(ESCAPES)}"'


@lru_cache(maxsize=1024)
def is_bare(key: str) -> bool:
    """May the key stand without quotes?"""
    return _bare(key)


def _bare(key: str) -> bool:
    if not key or key in RESERVED:
        return False
    if key.isascii():
        return key.replace("$", "_").isidentifier()
    return _is(key[0], FIRST, "$_") and all(_is(letter, FURTHER, "$_") for letter in key[1:])


def _is(letter: str, categories: frozenset[str], also: str) -> bool:
    return letter in also or unicodedata.category(letter) in categories
