"""One source file of a foreign format, and the files in its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.core.errors import ConfigError, Problem
from metatemplate.files import yaml

MAX_SOURCE_BYTES = 1024 * 1024
"""Maximum bytes of a source file."""

ReadFile = Callable[[str], bytes | None]
"""Returns the bytes of a file by its path; None if the file is missing, or is outside the source's folder and roots."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source file to import, with access to its folder and to the folders that the user named as roots."""

    name: str
    """The path of the file, as messages show it."""
    data: bytes
    read_file: ReadFile
    path: str = ""
    """The path of the file, with `/` between folders, from which the paths of other files are made."""
    roots: tuple[str, ...] = ()
    """The folders from which a Python config may read packages, such as ``…/site-packages/opencompass``."""
    loaded: Mapping[str, Any] | None = None
    """The values of a Python config by name, if the Python of another environment has loaded it (``environment``)."""

    def other(self, path: str, data: bytes) -> Source:
        """Return another file that this file reads."""
        return replace(self, name=path, path=path, data=data)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def short_name(self) -> str:
        """``folder/file``, for the header. The rest of the path has no meaning on other machines."""
        return "/".join(self.name.replace("\\", "/").split("/")[-2:])

    @property
    def stem(self) -> str:
        """The file's name without folders and suffix."""
        return self.name.replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0]

    def text(self) -> str:
        """Return the file as text. Raises ``ConfigError`` if the file is not UTF-8 or is too large."""
        if len(self.data) > MAX_SOURCE_BYTES:
            size = MAX_SOURCE_BYTES // 1024
            raise self.refuse(0, f"the file is larger than {size} KiB; copy only the template to a file")
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            raise self.refuse(line, "the file is not UTF-8; save it as UTF-8") from None

    def value(self) -> Any:
        """Return the parsed value of a JSON or YAML file. Raises ``ConfigError`` if the file is not valid."""
        text = self.text()
        if not self.name.endswith(".json"):
            document = yaml.parse(self.data, self.name)
            if document.problems:
                raise ConfigError(tuple(document.problems))
            return document.value
        try:
            value = json.loads(text)
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise self.refuse(0, f"{half} is half of a surrogate pair; write the whole character") from None
        except ValueError as error:
            raise self.refuse(getattr(error, "lineno", 0), f"the file is not valid JSON: {error}") from None
        except RecursionError:
            raise self.refuse(0, "the JSON is nested too deeply") from None
        return value

    def refuse(self, line: int, message: str, key: str = "") -> ConfigError:
        """Return the error for a problem with this file. Line 0 means the file as a whole."""
        return ConfigError((Problem(self.name, line, key, message),))
