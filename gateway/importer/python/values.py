"""The values of a Python file that are not plain: unknown expressions, calls that are not executed, and functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.importer.source import Source


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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NameReference(PythonExpression):
    """A name that has no value in the file, such as an imported class."""

    full_name: str = ""
    """The name with the module from which the file imports it, such as ``copy.deepcopy``."""


class Unsupported(PythonExpression):
    """An expression with syntax that is not supported."""


class Deleted(Unsupported):
    """A name that the file deleted with ``del``."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LocalFunction(PythonExpression):
    """A function of the file. Its body is evaluated when the file calls it."""

    arguments: ast.arguments
    body: tuple[ast.stmt, ...]
    defaults: Mapping[str, Any]
    scopes: tuple[dict[str, Any], ...]
    """The names that the body can read, outermost first."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CallExpression(PythonExpression):
    """A call, for example of a constructor. The call is not executed."""

    args: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{self.text}(…) (line {self.line})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LocalClass(NameReference):
    """A class of the file."""

    functions: tuple[LocalFunction, ...] = ()
    """The methods that a call of the class executes."""


class TupleValue(list[Any]):
    """A tuple of the file. It is a list for all readers; the evaluator does not change it in place."""


@dataclass(frozen=True, slots=True, eq=False)
class MethodCall:
    """A method call on the result of another call, such as ``Module("name").prompt(prompter)``. No call is executed."""

    owner: CallExpression
    method: str
    args: tuple[Any, ...]


def parts(value: Any, seen: set[int] | None = None, *, repeated: bool = False) -> Iterator[Any]:
    """Yield a value and all values inside it, in file order. Lists, mappings and calls are yielded only once.

    ``seen``: the ``id`` of each value that is left out. ``repeated``: yield values as often as they occur; this never
    ends for a list that contains itself.
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
        if isinstance(one, CallExpression):
            waiting += reversed([*one.args, *one.keywords.values()])
        elif isinstance(one, dict):
            waiting += reversed(one.values())
        elif isinstance(one, list):
            waiting += reversed(one)
