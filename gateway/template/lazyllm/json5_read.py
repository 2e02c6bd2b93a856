"""What does a tool's result or a model's argument say? A reader for JSON5 (``specs/lazyllm.md`` 6 and 11).

It takes what the reference's library takes: comments, single quotes, bare keys, trailing commas, hexadecimal numbers.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from gateway.template.lazyllm.json5_write import FIRST, FURTHER

MAX_DEPTH = 100
"""Containers within containers; deeper text is no value here."""

COMMENT = re.compile(r"//[^\r\n\u2028\u2029]*|/\*.*?\*/", re.DOTALL)
NUMBER = re.compile(
    r"(?P<hex>0[xX][0-9a-fA-F]+)|(?P<float>(?:0|[1-9][0-9]*)?\.[0-9]*(?:[eE][+-]?[0-9]+)?|(?:0|[1-9][0-9]*)[eE][+-]?[0-9]+)"
    r"|(?P<int>0|[1-9][0-9]*)"
)
SURROGATE = re.compile("[\ud800-\udfff]")
PLAIN = {quote: re.compile(rf"[^{quote}\\\r\n\u2028\u2029]+") for quote in "'\""}
SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
WORDS = {"null": None, "true": True, "false": False}
INFINITY = float("inf")
LINE_ENDS = "\r\n\u2028\u2029"


class NotJson5(ValueError):
    """The text is no JSON5 value."""


def read_json5(text: str) -> Any:
    """The value that the text writes. Raises NotJson5."""
    reader = _Reader(text)
    reader.blanks()
    value = reader.value(0)
    reader.blanks()
    if reader.at < len(text):
        raise NotJson5(f"unexpected text at {reader.at}")
    return value


class _Reader:
    """A text and how far it is read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, wanted: str) -> bool:
        """Step over the text if it comes next."""
        if not self.text.startswith(wanted, self.at):
            return False
        self.at += len(wanted)
        return True

    def blanks(self) -> None:
        """Step over white space and comments."""
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in " \t\v\f\xa0\ufeff" or letter in LINE_ENDS or unicodedata.category(letter) == "Zs":
                self.at += 1
            elif letter == "/" and (comment := COMMENT.match(self.text, self.at)):
                self.at = comment.end()
            else:
                return

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise NotJson5("nested too deeply")
        letter = self.peek()
        if letter == "{":
            return self.object(depth)
        if letter == "[":
            return self.array(depth)
        if letter and letter in "'\"":
            return self.string()
        for word, meaning in WORDS.items():
            if self.take(word):
                return meaning
        return self.number()

    def object(self, depth: int) -> dict[str, Any]:
        self.at += 1
        found: dict[str, Any] = {}
        self.blanks()
        while not self.take("}"):
            letter = self.peek()
            key = self.string() if letter and letter in "'\"" else self.name()
            self.blanks()
            self.need(":")
            self.blanks()
            found[key] = self.value(depth + 1)
            self.separator("}")
        return found

    def array(self, depth: int) -> list[Any]:
        self.at += 1
        found: list[Any] = []
        self.blanks()
        while not self.take("]"):
            found.append(self.value(depth + 1))
            self.separator("]")
        return found

    def separator(self, end: str) -> None:
        """A comma, or nothing where the container ends."""
        self.blanks()
        if self.take(","):
            self.blanks()
        elif self.peek() != end:
            raise NotJson5(f"expected , or {end} at {self.at}")

    def need(self, wanted: str) -> None:
        if not self.take(wanted):
            raise NotJson5(f"expected {wanted} at {self.at}")

    def string(self) -> str:
        quote = self.peek()
        self.at += 1
        pieces: list[str] = []
        while not self.take(quote):
            if plain := PLAIN[quote].match(self.text, self.at):
                pieces.append(plain.group())
                self.at = plain.end()
            elif self.take("\\"):
                pieces.append(self.escape())
            else:
                raise NotJson5(f"a string does not end at {self.at}")
        return _paired("".join(pieces))

    def escape(self) -> str:
        letter = self.peek()
        if not letter:
            raise NotJson5("a string ends in a backslash")
        self.at += 1
        if letter in SIMPLE:
            return SIMPLE[letter]
        if letter in "xu":
            return self.code(2 if letter == "x" else 4)
        if letter == "\r":
            self.take("\n")
        if letter in LINE_ENDS:
            return ""
        if not "0" <= letter <= "9":
            return letter
        if letter != "0" or "0" <= self.peek() <= "9":
            raise NotJson5(f"an octal escape at {self.at}")
        return "\0"

    def code(self, digits: int) -> str:
        found = self.text[self.at : self.at + digits]
        if not re.fullmatch(rf"[0-9a-fA-F]{{{digits}}}", found):
            raise NotJson5(f"a bad escape at {self.at}")
        self.at += digits
        return chr(int(found, 16))

    def name(self) -> str:
        """A bare key."""
        letters: list[str] = []
        while letter := self.peek():
            if letter == "\\":
                self.at += 1
                self.need("u")
                letters.append(self.code(4))
                continue
            category = unicodedata.category(letter)
            further = bool(letters) and (category in FURTHER or letter in "\u200c\u200d")
            if not (letter in "$_" or category in FIRST or further):
                break
            letters.append(letter)
            self.at += 1
        if not letters:
            raise NotJson5(f"expected a key at {self.at}")
        return _paired("".join(letters))

    def number(self) -> int | float:
        """Plus signs are empty; one minus may stand before anything but a hexadecimal number."""
        signs = ""
        while self.peek() and self.peek() in "+-":
            signs += self.peek()
            self.at += 1
        minus = signs.count("-")
        if minus > 1:
            raise NotJson5(f"two signs at {self.at}")
        if self.take("Infinity"):
            return -INFINITY if minus else INFINITY
        if self.take("NaN"):
            return float("nan")
        found = NUMBER.match(self.text, self.at)
        if not found or (minus and found["hex"]):
            raise NotJson5(f"expected a value at {self.at}")
        self.at = found.end()
        if found["hex"]:
            return int(found["hex"], 16)
        try:
            value = float(found["float"]) if found["float"] else int(found["int"])
        except ValueError as error:  # a lone point, or too many digits
            raise NotJson5(str(error)) from error
        return -value if minus else value


def _paired(text: str) -> str:
    """Escaped halves of a character put together, as they arrive with the reference, whose text goes out as JSON.

    A half without its other half is no text that could be sent. Raises NotJson5.
    """
    if not SURROGATE.search(text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise NotJson5("half a character") from error
