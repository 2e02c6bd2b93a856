"""Reads JSON5 as LazyLLM's library does (``json5`` 0.9), in linear time."""

from __future__ import annotations

import re
from typing import Any

from metatemplate.prompters.json5 import FIRST, FURTHER, is_in

MAX_JSON5_DEPTH = 100
"""The deepest nesting of lists and objects that is read."""

BLANKS = re.compile(
    "(?:[ \t\v\f\r\n\xa0\ufeff\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]|//[^\r\n\u2028\u2029]*|/\\*.*?\\*/)*+",
    re.DOTALL,
)
WORD = re.compile(r"null|true|false")
WORDS = {"null": None, "true": True, "false": False}
NUMBER = re.compile(
    r"(?P<signs>[+-]*)(?:(?P<hex>0[xX][0-9a-fA-F]+)"
    r"|(?P<float>Infinity|NaN|(?:0|[1-9][0-9]*)?\.[0-9]*(?:[eE][+-]?[0-9]+)?|(?:0|[1-9][0-9]*)[eE][+-]?[0-9]+)"
    r"|(?P<int>0|[1-9][0-9]*))"
)
STRING = re.compile(
    r"'((?:[^'\\\r\n\u2028\u2029]++|\\(?:\r\n|.))*+)'" r'|"((?:[^"\\\r\n\u2028\u2029]++|\\(?:\r\n|.))*+)"', re.DOTALL
)
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|0(?![0-9])|\r\n|([^0-9ux]))", re.DOTALL)
MEANINGS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | dict.fromkeys("\r\n\u2028\u2029", "")
SURROGATE = re.compile("[\ud800-\udfff]")


class NotJson5(ValueError):
    """The text is not a JSON5 value."""


def read_json5(text: str) -> Any:
    """Return the value of a JSON5 text. Raises NotJson5, or ValueError for a number with too many digits."""
    value, at = _value(text, _skip(text, 0), 0)
    if at < len(text):
        raise NotJson5(f"unexpected text at offset {at}")
    return value


def _skip(text: str, at: int) -> int:
    """Return the offset after the white space and the comments at offset ``at``."""
    blanks = BLANKS.match(text, at)
    assert blanks is not None
    return blanks.end()


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    """Return the value at offset ``at``, and the offset after the value."""
    if depth > MAX_JSON5_DEPTH:
        raise NotJson5(f"the value is nested deeper than {MAX_JSON5_DEPTH} levels")
    opening = text[at : at + 1]
    value: Any
    if opening == "{":
        value, at = _object(text, at + 1, depth + 1)
    elif opening == "[":
        value, at = _array(text, at + 1, depth + 1)
    elif opening in ("'", '"'):
        value, at = _string(text, at)
    elif word := WORD.match(text, at):
        value, at = WORDS[word[0]], word.end()
    else:
        value, at = _number(text, at)
    return value, _skip(text, at)


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    at = _skip(text, at)
    while not text.startswith("}", at):
        key, at = _string(text, at) if text[at : at + 1] in ("'", '"') else _name(text, at)
        at = _skip(text, at)
        if not text.startswith(":", at):
            raise NotJson5(f"expected : at offset {at}")
        found[key], at = _value(text, _skip(text, at + 1), depth)
        at = _after_item(text, at, "}")
    return found, at + 1


def _array(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = _skip(text, at)
    while not text.startswith("]", at):
        value, at = _value(text, at, depth)
        found.append(value)
        at = _after_item(text, at, "]")
    return found, at + 1


def _after_item(text: str, at: int, end: str) -> int:
    if text.startswith(",", at):
        return _skip(text, at + 1)
    if not text.startswith(end, at):
        raise NotJson5(f"expected , or {end} at offset {at}")
    return at


def _string(text: str, at: int) -> tuple[str, int]:
    found = STRING.match(text, at)
    if found is None:
        raise NotJson5(f"the string at offset {at} has no end")
    inner = found[1] if found[1] is not None else found[2]
    return _unescaped(inner) if "\\" in inner else _paired(inner), found.end()


def _unescaped(text: str) -> str:
    def meaning(escape: re.Match[str]) -> str:
        code = escape[1] or escape[2]
        if code:
            return chr(int(code, 16))
        if escape[3]:
            return MEANINGS.get(escape[3], escape[3])
        return "\0" if escape[0] == "\\0" else ""

    pieces: list[str] = []
    at = 0
    while (place := text.find("\\", at)) >= 0:
        escape = ESCAPE.match(text, place)
        if escape is None:
            raise NotJson5("the string contains an escape that JSON5 does not have")
        pieces += (text[at:place], meaning(escape))
        at = escape.end()
    return _paired("".join([*pieces, text[at:]]))


def _name(text: str, at: int) -> tuple[str, int]:
    """Return the key without quotes at offset ``at``, and the offset after the key."""
    characters: list[str] = []
    begin = at
    while character := text[at : at + 1]:
        if character == "\\":
            escape = ESCAPE.match(text, at)
            if escape is None or not escape[1]:
                raise NotJson5(f"the key contains an escape that is not allowed, at offset {at}")
            characters.append(chr(int(escape[1], 16)))
            at = escape.end()
            continue
        if not (is_in(character, FURTHER if characters else FIRST) or (characters and character in "\u200c\u200d")):
            break
        characters.append(character)
        at += 1
    if not characters:
        raise NotJson5(f"expected a key at offset {begin}")
    return _paired("".join(characters)), at


def _number(text: str, at: int) -> tuple[int | float, int]:
    """Return the number at offset ``at``, and the offset after the number.

    Plus signs are ignored. A minus sign is allowed before any number that is not hexadecimal.
    """
    found = NUMBER.match(text, at)
    if found is None or (minus := found["signs"].count("-")) > 1 or (minus and found["hex"]):
        raise NotJson5(f"expected a value at offset {at}")
    if found["hex"]:
        return int(found["hex"], 16), found.end()
    try:
        value = float(found["float"]) if found["float"] else int(found["int"])
    except ValueError as error:  # only a point, or too many digits
        raise NotJson5(str(error)) from error
    return -value if minus else value, found.end()


def _paired(text: str) -> str:
    """Join escaped surrogate pairs. Raises NotJson5 for a lone surrogate, which UTF-8 cannot express."""
    if not SURROGATE.search(text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise NotJson5("the text contains a lone surrogate") from error
