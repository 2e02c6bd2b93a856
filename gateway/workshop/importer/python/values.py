"""The values of a Python file that are not plain: names, calls, and expressions that are not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.core.errors import ConfigError
from gateway.workshop.importer.source import Source

RESOLVED = "mmengine's Config.fromfile(FILE).dump('resolved.json')"
"""The way to write a config with all its values, for messages."""
WAYS = (
    "write the plain value there, or, for a config of OpenCompass or AISBench, run it with --python ENV/bin/python, or "
    f"import the resolved config ({RESOLVED})"
)
"""What to do about code that is not read, for messages."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PythonExpression:
    """An expression whose value is not known, because nothing is executed."""

    text: str
    line: int
    source: Source
    """The file that contains the expression."""
    key: str = field(default="", kw_only=True)
    """The path of a value that another Python has loaded, such as ``datasets[0].infer_cfg``. It has no line."""

    def __repr__(self) -> str:
        return f"{self.text} (line {self.line})" if self.line else self.text

    @property
    def last(self) -> str:
        """The part of the expression after the last dot."""
        return self.text.rsplit(".", 1)[-1]

    def refusal(self, what: str) -> ConfigError:
        """Return the error for a setting that contains the expression. ``what``: the name of the setting."""
        if self.key:
            return self.source.refuse(0, f"{what} contains {self}; write a plain value there", self.key)
        executed = "" if isinstance(self, Unsupported) else ", which is not executed"
        return self.source.refuse(self.line, f"{what} contains {self}{executed}; {WAYS}")


class NameReference(PythonExpression):
    """A name that has no value in the file, such as an imported class."""


class Unsupported(PythonExpression):
    """An expression with syntax that is not read."""


class LocalFunction(PythonExpression):
    """A function of the file."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CallExpression(PythonExpression):
    """A call, for example of a constructor. The call is not executed."""

    args: tuple[Any, ...]
    keywords: Mapping[str, Any]
    owner: CallExpression | None = None
    """The call whose result is called, such as ``Module("name")`` of ``Module("name").prompt(p)``."""

    def __repr__(self) -> str:
        return f"{self.text}(…) (line {self.line})"

    @property
    def is_inert(self) -> bool:
        """Whether the call changes no argument: that of a class, which stores its arguments, or of its object."""
        is_class = self.last.lstrip("_")[:1].isupper() or self.text == "print"
        return is_class or (self.owner is not None and self.owner.is_inert)


class TupleValue(list[Any]):
    """A tuple of the file. It is a list for all importers; the reader does not change it in place."""


def parts(value: Any, seen: set[int] | None = None, *, repeated: bool = False) -> Iterator[Any]:
    """Yield a value and all values inside it, in file order. Lists, mappings and calls are yielded only once.

    ``seen``: the ``id`` of each value that is left out. ``repeated``: yield values as often as they occur.
    """
    seen = set() if seen is None else seen
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        if not repeated and not isinstance(one, str | int | float | None):
            seen.add(id(one))
        yield one
        inner = [*one.args, *one.keywords.values()] if isinstance(one, CallExpression) else one
        inner = [*one.values()] if isinstance(one, dict) else inner
        waiting += reversed(inner) if isinstance(inner, list) else ()
