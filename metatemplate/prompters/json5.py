"""Writes JSON5 like the library that LazyLLM uses (``docs/spec/lazyllm.md`` 6, 7), and prints results of tools.

This library (``json5`` 0.9) needs 10 µs for each character. Tests compare this module with its recorded results.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from typing import Any

RESERVED_WORDS = frozenset({
    "break", "case", "catch", "class", "const", "continue", "debugger", "default", "delete", "do", "else", "enum",
    "export", "extends", "false", "finally", "for", "function", "if", "import", "in", "instanceof", "new", "null",
    "return", "super", "switch", "this", "throw", "true", "try", "typeof", "var", "void", "while", "with",
})  # fmt: skip
"""The reserved words. A key that is a reserved word needs quotes."""
FIRST = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl"})
"""The Unicode categories of characters that may begin a key without quotes."""
FURTHER = FIRST | {"Nd", "Mn", "Mc", "Pc"}
LINE_SEPARATORS = ("\u2028", "\u2029")
"""Characters that JSON allows in strings and LazyLLM's JSON5 reader refuses."""
WRITTEN_ESCAPES = str.maketrans(
    {
        "\\": "\\\\",
        '"': '\\"',
        "\n": "\\n",
        "\r": "\\r",
        "\b": "\\b",
        "\f": "\\f",
        "\t": "\\t",
        "\v": "\\v",
        "\0": "\\0",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
)


def write_json5(value: Any) -> str:
    """Return the value as JSON5 on one line. Raises TypeError for a value that JSON cannot express."""
    if isinstance(value, str):
        return f'"{value.translate(WRITTEN_ESCAPES)}"'
    if value is None or isinstance(value, (int, float)):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join([f"{_written_key(key)}: {write_json5(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([write_json5(item) for item in value]) + "]"
    raise TypeError(f"{value!r} is not JSON serializable")


def _written_key(key: Any) -> str:
    text = key if isinstance(key, str) else write_json5(key)
    return text if is_bare(text) else f'"{text.translate(WRITTEN_ESCAPES)}"'


def is_bare(key: str) -> bool:
    """Return whether the key can be written without quotes."""
    if not key or key in RESERVED_WORDS:
        return False
    if key.isascii():
        return key.replace("$", "_").isidentifier()
    return is_in(key[0], FIRST) and all(is_in(character, FURTHER) for character in key[1:])


def is_in(character: str, categories: frozenset[str]) -> bool:
    """Return whether a character is ``$``, ``_`` or of one of the Unicode categories."""
    return character in "$_" or unicodedata.category(character) in categories


def printed_result(content: str) -> str:
    """Return a tool's result that is JSON as LazyLLM prints it: ``str()`` of the value. Other texts are unchanged."""
    text = content.strip()
    if any(character in text for character in LINE_SEPARATORS):
        return content
    try:
        printed = str(json.loads(text))
        printed.encode()
    except (ValueError, RecursionError):  # not JSON, too many digits or levels, or half of a surrogate pair
        return content
    return printed
