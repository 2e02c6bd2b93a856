"""What does a source hold? One file of a foreign format, read once, bounded, and blamed by its line.

Sources are hostile: nothing in them is executed, and a path in them leads no further than the folder they lie in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.core.errors import ConfigError, Problem

MOST_BYTES = 1024 * 1024
"""Of one file; a tokenizer's configuration with thousands of added tokens has a third of that."""
MOST_DEPTH = 32
"""Levels of lists and mappings in a JSON file, as in our own YAML."""

Beside = Callable[[str], bytes | None]
"""A file's bytes by its path from the source's folder; None: there is none, or it lies outside."""
Parse = Callable[[bytes, str], Any]
"""Reads a YAML file strictly; raises ``ConfigError``. Handed in, because YAML is read by ``config``."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file, and how to reach its neighbours."""

    name: str
    """As messages show it."""
    data: bytes
    beside: Beside
    parse: Parse

    @property
    def digest(self) -> str:
        """The SHA-256 in hex."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def short(self) -> str:
        """The file with its folder: a header is read elsewhere, where the rest of a path means nothing."""
        return "/".join(self.name.replace("\\", "/").split("/")[-2:])

    @property
    def stem(self) -> str:
        """The file's name without folders and ending."""
        return self.name.replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0]

    def text(self) -> str:
        """The file as text; raises ``ConfigError`` for what is not UTF-8, or too large."""
        if len(self.data) > MOST_BYTES:
            raise self.refuse(0, f"larger than {MOST_BYTES // 1024} KiB: copy what is needed into a file of its own")
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            raise self.refuse(line, "not UTF-8: save the file as UTF-8") from None

    def value(self) -> Any:
        """The value of a JSON or YAML file; raises ``ConfigError``."""
        text = self.text()
        if not self.name.endswith(".json"):
            return self.parse(self.data, self.name)
        try:
            value = json.loads(text)
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise self.refuse(0, f"holds {half}, half of a character: write the whole one") from None
        except ValueError as error:
            raise self.refuse(getattr(error, "lineno", 0), f"no JSON: {error}") from None
        except RecursionError:
            raise self.refuse(0, f"nests deeper than {MOST_DEPTH} levels") from None
        if _depth(value) > MOST_DEPTH:
            raise self.refuse(0, f"nests deeper than {MOST_DEPTH} levels")
        return value

    def refuse(self, line: int, message: str, key: str = "") -> ConfigError:
        """Why this source cannot be imported, and what to do."""
        return ConfigError((Problem(self.name, line, key, message),))


def _depth(value: Any) -> int:
    """Levels of a JSON value, which ``json`` has bounded by Python's own recursion already."""
    deepest, waiting = 0, [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        deepest = max(deepest, depth)
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        waiting.extend((entry, depth + 1) for entry in inner)
    return deepest
