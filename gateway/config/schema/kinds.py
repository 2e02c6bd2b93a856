"""The kinds of values that settings have, and the syntax of each kind.

A kind stands in the type of a setting, as in ``Annotated[int, SIZE]``, and pydantic calls it for the value in the file.
Each kind converts a YAML value, or raises ``ValueError`` with a message that names the expected form.
The messages of kinds that may receive a secret (``url``, ``secret``, ``digest``) never contain the value.
"""

from __future__ import annotations

import datetime
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, PydanticOmit, core_schema

from metatemplate.files.yaml import parse_scalar
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.json_values import not_one_of
from metatemplate.values.words import quoted

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
MOST_WORKERS = 64
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The container's CPU quota file. It contains ``200000 100000`` (microseconds in each period) or ``max 100000``."""

A_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
A_PERCENTAGE = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?) ?%")
A_SIZE = re.compile(r"([0-9]{1,12})(B|KiB|MiB|GiB)")
A_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
AN_ORIGIN = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*://(?:{A_HOST.pattern})(?::[0-9]{{1,5}})?")
A_PATH = re.compile(r"/[A-Za-z0-9._~%/-]*")
A_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""The allowed names of templates and policies. A name is used as a file name, so it cannot contain a path."""
MODEL_NAME = re.compile(r"[!-~]{1,128}")
"""The allowed names of models: printable ASCII, because headers, URL paths and metric labels contain the name."""
KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""The allowed names of client keys, which appear in logs."""


class VariableText(str):
    """The text of an environment variable, as the value of a setting."""


class Invalid:
    """Replaces a value that was refused, or a whole section that was refused. Later checks ignore this value."""

    def __bool__(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Invalid:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


INVALID: Final = Invalid()
KIND: Final = "kind"
"""The key of a ``Kind`` in the metadata of pydantic's schema."""
EMPTY: Final = "is empty; write a value, or remove the line"


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One kind of value, written in the ``Annotated`` type of a setting."""

    name: str
    """The name shown in the documentation."""
    read: Callable[[Any], Any]
    """A function that converts a YAML value. Raises ``ValueError`` with a message for the operator."""
    schema: Mapping[str, Any] = EMPTY_MAPPING
    """The JSON Schema of the YAML value, for editors. It accepts every value that ``read`` accepts."""
    write: Callable[[Any], Any] = lambda value: value
    """A function that converts a default to its form in a file."""
    or_none: bool = False
    """Whether an empty value in a file means the empty text."""

    def convert(self, value: Any, info: core_schema.ValidationInfo[Any]) -> Any:
        """Convert the value of a file. The context of the validation is a function that reads a secret."""
        if value is INVALID:
            return value
        if value is None:
            if self.or_none:
                return ""
            raise ValueError(EMPTY)
        found = self.from_text(str(value)) if isinstance(value, VariableText) else self.read(value)
        return info.context(found) if isinstance(found, SecretReference) else found

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self.convert, metadata={KIND: self})

    def from_text(self, text: str) -> Any:
        """Convert the text of an environment variable. The entries of a list are separated by commas.

        Raises ``ValueError`` with a message for the operator.
        """
        if self.schema.get("type") == "array":
            return self.read([part.strip() for part in text.split(",") if part.strip()])
        is_text = self.schema.get("type") == "string" or "enum" in self.schema
        return self.read(text if is_text else parse_scalar(text))


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A reference to a secret in an environment variable (``where`` is ``env``) or a file (``where`` is ``file``)."""

    where: str
    name: str


def _matching(pattern: re.Pattern[str]) -> dict[str, Any]:
    """Return the JSON Schema of a text that matches a regular expression as a whole."""
    return {"type": "string", "pattern": f"^(?:{pattern.pattern})$"}


def describe(value: object) -> str:
    """Return a short description of a value for a message."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {quoted(value)}"
        case list():
            return "a list"
    return "a mapping"


# ---------------------------------------------------------------- plain values


def _prose(value: Any) -> str:
    if not isinstance(value, str):
        hint = "" if isinstance(value, dict | list) else "; put it in quotes"
        raise ValueError(f"must be text, not {describe(value)}{hint}")
    return value.strip()


def _text(value: Any) -> str:
    if not _prose(value):
        raise ValueError(EMPTY)
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise ValueError("contains a control character; write the text on one line, without escapes")
    return str(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {describe(value)}")
    return value


def integer(low: int, high: int | None = None, *, auto: Callable[[], int] | None = None) -> Kind:
    """Return the kind of a whole number within a range.

    ``auto``: a function that returns the number for the word ``auto``. None if the word is not allowed.
    """
    span = f"whole number from {low} to {high}" if high is not None else f"whole number, at least {low}"
    span += ", or auto" if auto is not None else ""

    def read(value: Any) -> int:
        if auto is not None and value == "auto":
            return auto()
        if type(value) is not int or value < low or (high is not None and value > high):
            raise ValueError(f"must be a {span}, not {describe(value)}")
        return value

    schema = {"type": "integer", "minimum": low} | ({} if high is None else {"maximum": high})
    return Kind(span, read, schema=schema if auto is None else {"anyOf": [schema, {"const": "auto"}]})


def choice(*words: str) -> Kind:
    """Return the kind of a value that must be one of several words."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(not_one_of(words, value))
        return value

    return Kind("one of " + ", ".join(words), read, schema={"enum": list(words)})


class _Words:
    """The kind of a ``Literal``: one of its words."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return choice(*get_args(source)).__get_pydantic_core_schema__(source, handler)


def usable_cores(quota: Path = QUOTA) -> int:
    """Return the number of cores that this process may use: its CPU affinity, limited by a container's quota."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
    except (OSError, ValueError):  # no cgroups, or cgroups v1
        return cores
    return cores if allowed == "max" else max(1, min(cores, math.ceil(int(allowed) / int(period))))


def duration(*, positive: bool = False) -> Kind:
    """Return the kind of a duration. The operator writes a unit, and the value is in seconds."""

    def read(value: Any) -> float:
        match = A_DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"must be a duration such as 250ms, 2s, 10m or 1h, not {describe(value)}")
        seconds = float(match[1]) * SECONDS[match[2]]
        if positive and seconds == 0:
            raise ValueError("must be more than 0; to use the default, remove the line")
        return seconds

    return Kind("duration", read, schema=_matching(A_DURATION), write=_written_duration)


def _written_duration(seconds: float) -> str:
    hours = seconds / SECONDS["h"]
    if seconds and hours == int(hours):
        return f"{hours:g}h"
    return f"{seconds:g}s" if seconds == int(seconds) else f"{seconds / SECONDS['ms']:g}ms"


def _percent(value: Any) -> float:
    """Convert a percentage to a share from 0 to 1."""
    match = A_PERCENTAGE.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 <= float(match[1]) <= 100:
        raise ValueError(f"must be a percentage from 0% to 100%, such as 20%, not {describe(value)}")
    return float(match[1]) / 100


def _url_path(value: Any) -> str:
    text = _text(value)
    if not A_PATH.fullmatch(text):
        raise ValueError(f"must be a path such as /health, not {describe(value)}")
    return text


def _written_size(size: int) -> str:
    return next(f"{size // factor}{unit}" for unit, factor in reversed(BYTES.items()) if size % factor == 0)


def _size(value: Any) -> int:
    if type(value) is int and value > 0:
        return value
    match = A_SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        raise ValueError(f"must be a size such as 64KiB or 4MiB, or a number of bytes, not {describe(value)}")
    return int(match[1]) * BYTES[match[2]]


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping such as {{temperature: 0}}, not {describe(value)}")
    return MappingProxyType(value)


def _bounds(value: Any) -> Mapping[str, float]:
    bounds = _mapping(value)
    for name, bound in bounds.items():
        if type(bound) not in (int, float):
            raise ValueError(f"the upper bound of {quoted(name)} must be a number, not {describe(bound)}")
    return bounds


def list_of(kind: Kind) -> Kind:
    """Return the kind of a list of values, all of the same kind."""

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError(f"must be a list such as [a, b], not {describe(value)}")
        return tuple(kind.read(item) for item in value)

    return Kind(f"list of {kind.name}", read, schema={"type": "array", "items": kind.schema}, write=list)


# ---------------------------------------------------------------- addresses, secrets, dates


def _host(value: Any) -> str:
    text = _text(value)
    if text != "*" and not A_HOST.fullmatch(text):
        raise ValueError(
            f"{quoted(text)} is not a host name such as example.org or [::1]; remove scheme, port and path"
        )
    return text.lower()


def _bind(value: Any) -> str:
    text = _text(value)
    if not (A_HOST.fullmatch(text) or re.fullmatch(r"[0-9A-Fa-f:.]+|unix:/.+", text)):
        known = "127.0.0.1, ::1, 0.0.0.0 or unix:/run/gateway/gateway.sock"
        raise ValueError(f"{quoted(text)} is not an address to listen on, such as {known}")
    return text


def _listener(value: Any) -> str:
    host, _, port = _text(value).rpartition(":")
    if not A_HOST.fullmatch(host) or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"must be host:port such as 127.0.0.1:9464, not {describe(value)}")
    return f"{host}:{int(port)}"


def _origin(value: Any) -> str:
    text = _text(value)
    if text != "*" and not AN_ORIGIN.fullmatch(text):
        raise ValueError(
            f"{quoted(text)} is not an origin such as https://chat.example.org or http://localhost:3000; leave out "
            "the path and the last slash"
        )
    return text.lower()


def _url(value: Any) -> str:
    text = _text(value)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("is not a valid address; check the brackets and the port") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError('contains a user name or password; use the setting key ("env:NAME") instead')
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError('must be an address with http:// or https://, such as "http://127.0.0.1:8101/v1"')
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise ValueError("contains a query or fragment; the address must end with the path, such as /v1")
    if not text.isascii() or " " in text or "\\" in text:
        raise ValueError("contains a character that is not allowed in addresses; percent-encode it")
    for ending in ("/chat/completions", "/completions", "/embeddings"):
        if parts.path.rstrip("/").endswith(ending):
            raise ValueError(f"must be the base address; remove {ending}, because the gateway adds it")
    return text.rstrip("/")


def _spans_url(value: Any) -> str:
    url = _url(value)
    if not urlsplit(url).path:
        raise ValueError(f"has no path; receivers of OTLP over HTTP take spans at {url}/v1/traces")
    return url


def _store_url(value: Any) -> str:
    text = _text(value)
    parts = urlsplit(text)
    if parts.password is not None or parts.username is not None:
        raise ValueError('contains a user name or password; use the setting password ("env:NAME") instead')
    if parts.scheme not in ("redis", "rediss", "unix") or not (parts.hostname or parts.path):
        raise ValueError('must be an address such as "redis://127.0.0.1:6379/0"')
    return text


def _secret(value: Any) -> SecretReference:
    where, colon, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not colon or where not in ("env", "file"):
        raise ValueError('must be "env:NAME" or "file:PATH"; do not write the secret itself in this file')
    if where == "env" and not A_VARIABLE.fullmatch(name):
        raise ValueError('must be the name of an environment variable after "env:", such as env:OPENAI_API_KEY')
    if where == "file" and not (name and name.isprintable()):
        raise ValueError('must be a path after "file:", such as file:secrets/openai')
    return SecretReference(where, name)


def _pattern(value: Any) -> str:
    from gateway.wire.redaction import compile_pattern

    text = _text(value)
    with suppress(ImportError):  # ``config/load.py`` reports the missing package
        compile_pattern(text)
    return text


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        what = "must be 64 hex digits in quotes, the SHA-256 of the key; do not write the key itself here"
        raise ValueError(f"{what} (`gateway keys new NAME` makes a key and its entry)")
    return value.lower()


def _moment(value: Any) -> float:
    """Convert a date or time to seconds since the epoch. A date is converted to the end of this day in UTC."""
    with suppress(TypeError, ValueError, OverflowError):
        moment = datetime.datetime.fromisoformat(value)
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
            return (moment.replace(tzinfo=datetime.UTC) + datetime.timedelta(days=1)).timestamp()
        if moment.tzinfo is not None:
            return moment.timestamp()
    raise ValueError(f"must be a day such as 2027-06-30, or a time such as 2027-06-30T12:00:00Z, not {describe(value)}")


WORKERS = integer(1, MOST_WORKERS, auto=lambda: min(usable_cores(), MOST_WORKERS))
A_STRING = {"type": "string"}
A_TEXT = {"type": "string", "minLength": 1}
TEXT = Kind("text", _text, schema=A_TEXT)
FILE = Kind("text", lambda value: Path(_text(value)), schema=A_TEXT)
FILES = list_of(FILE)
PROSE = Kind("text", _prose, schema=A_STRING)
SWITCH = Kind("true or false", _switch, schema={"type": "boolean"})
SIZE = Kind(
    "size", _size, schema={"anyOf": [{"type": "integer", "minimum": 1}, _matching(A_SIZE)]}, write=_written_size
)
PERCENT = Kind("percentage", _percent, schema=_matching(A_PERCENTAGE), write=lambda share: f"{share * 100:g}%")
URL_PATH = Kind("path of an address", _url_path, schema=_matching(A_PATH))
MAPPING = Kind("mapping", _mapping, schema={"type": "object"}, write=dict)
BOUNDS = Kind(
    "mapping of numbers",
    _bounds,
    schema={"type": "object", "additionalProperties": {"type": "number"}},
    write=dict,
)
BIND = Kind("address", _bind, schema=A_TEXT)
HOST_NAME = Kind("host name", _host, schema=A_TEXT)
LISTENER = Kind("host:port", _listener, schema={**A_STRING, "pattern": ":[0-9]+$"})
ORIGIN = Kind("origin", _origin, schema={**A_STRING, "pattern": r"^(\*$|[A-Za-z][A-Za-z0-9+.-]*://)"})
URL = Kind("http(s) address", _url, schema={**A_STRING, "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://"})
SPANS_URL = Kind("http(s) address", _spans_url, schema=URL.schema)
STORE_URL = Kind("redis address", _store_url, schema={**A_STRING, "pattern": ":"})
SECRET = Kind("env:NAME or file:PATH", _secret, schema={**A_STRING, "pattern": "^(env|file):"})
PATTERN = Kind("pattern", _pattern, schema=A_TEXT)
DIGEST = Kind("64 hex digits", _digest, schema={**A_STRING, "pattern": "^[0-9a-fA-F]{64}$"})
TEXT_OR_NONE, URL_OR_NONE, URL_PATH_OR_NONE, SPANS_URL_OR_NONE, STORE_URL_OR_NONE = (
    replace(kind, or_none=True) for kind in (TEXT, URL, URL_PATH, SPANS_URL, STORE_URL)
)
WORDS = _Words()
MOMENT = Kind("date or time", _moment, schema={**A_STRING, "pattern": "^[0-9]{4}"})


# ---------------------------------------------------------------- sections


class _NotInFiles:
    """Marks a field that the gateway sets itself. In a file, a key with its name is unknown."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_default_schema(core_schema.no_info_plain_validator_function(_unknown), default=None)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        raise PydanticOmit


def _unknown(value: object) -> object:
    raise PydanticCustomError("unexpected_keyword_argument", "unknown key")


class _Section:
    """Marks a mapping of settings, or a list of such mappings. A section may be empty."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        empty: Any = [] if get_origin(source) is tuple else {}

        def read(value: Any, inner: Callable[[Any], Any]) -> Any:
            return value if value is INVALID else inner(empty if value is None else value)

        return core_schema.no_info_wrap_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        found = handler.resolve_ref_schema(handler(schema))
        kept = {key: value for key, value in found.items() if key not in ("title", "description")}
        return {**kept, "type": [found["type"], "null"]}


T = TypeVar("T")
Internal = Annotated[T, _NotInFiles()]
"""A field that is not read from a file."""
Section = Annotated[T, _Section()]
Entries = Section[tuple[Section[T], ...]]
