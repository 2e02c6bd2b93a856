"""One source file of a foreign format, and the files in its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.core.errors import ConfigError, Problem

MAX_BYTES = 1024 * 1024
"""Of one file."""

ReadBeside = Callable[[str], bytes | None]
"""The bytes of a file by its path from the source's folder; None: there is none, or it is outside of the folder."""
ParseYaml = Callable[[bytes, str], Any]
"""Parses a YAML file of this name; raises ``ConfigError``. Passed in, because ``config`` reads YAML."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source file."""

    name: str
    """As messages show it."""
    data: bytes
    read_beside: ReadBeside
    parse_yaml: ParseYaml

    @property
    def sha256(self) -> str:
        """In hex."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def short_name(self) -> str:
        """The file with its folder only, for the header of a file that is read elsewhere."""
        return "/".join(self.name.replace("\\", "/").split("/")[-2:])

    @property
    def stem(self) -> str:
        """The file's name without folders and suffix."""
        return self.name.replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0]

    def text(self) -> str:
        """The file as text. Raises ``ConfigError`` if it is not UTF-8, or too large."""
        if len(self.data) > MAX_BYTES:
            raise self.refuse(0, f"larger than {MAX_BYTES // 1024} KiB: copy what is needed into a file of its own")
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            raise self.refuse(line, "not UTF-8: save the file as UTF-8") from None

    def value(self) -> Any:
        """The value of a JSON or YAML file. Raises ``ConfigError``."""
        text = self.text()
        if not self.name.endswith(".json"):
            return self.parse_yaml(self.data, self.name)
        try:
            value = json.loads(text)
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise self.refuse(0, f"holds {half}, half of a character: write the whole character") from None
        except ValueError as error:
            raise self.refuse(getattr(error, "lineno", 0), f"not valid JSON: {error}") from None
        except RecursionError:
            raise self.refuse(0, "nests too deeply") from None
        return value

    def refuse(self, line: int, message: str, key: str = "") -> ConfigError:
        """The error for a problem of this file; line 0 names no line."""
        return ConfigError((Problem(self.name, line, key, message),))
