"""Reads plain values of a Python file from its syntax tree. Nothing is imported or executed.

The supported syntax is literals (tuples become lists), names, ``dict(…)``, ``+`` of texts and lists, ``*`` and ``**``
of values, entries by a plain key, assignments to names, ``+=``, and ``read_base`` imports from the same folder or
below. Any other call becomes a ``CallExpression``, and any other name a ``NameReference``. All other syntax becomes
``Unsupported``, and the values that it may change are marked. An importer that needs such a value refuses the file.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gateway.core.errors import ConfigError
from gateway.importer.source import Source

MAX_LENGTH = 200_000
"""The largest number of characters of a text, or entries of a list, that is put together from parts."""
MAX_NOTES = 20
STAR = object()
"""The key that represents a ``**`` entry of a mapping."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PythonExpression:
    """An expression whose value is not known, because nothing is executed."""

    text: str
    line: int

    def __repr__(self) -> str:
        return f"{self.text} (line {self.line})"

    @property
    def last(self) -> str:
        """The part of the expression after the last dot."""
        return self.text.rsplit(".", 1)[-1]


class NameReference(PythonExpression):
    """A name that has no value in the file, such as an imported class."""


class Unsupported(PythonExpression):
    """An expression with syntax that is not supported."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CallExpression(PythonExpression):
    """A call, for example of a constructor. The call is not executed."""

    args: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{self.text}(…) (line {self.line})"


@dataclass(frozen=True, slots=True, eq=False)
class MethodCall:
    """A method call on the result of another call, such as ``Module("name").prompt(prompter)``. It is not executed."""

    owner: CallExpression
    method: str
    args: tuple[Any, ...]


class PythonFile:
    """The names and values of one file, and of the files imported by its ``read_base`` blocks.

    Raises ``ConfigError`` for a file that is not Python or is nested too deeply.
    """

    def __init__(self, source: Source, path: str = "", files: dict[str, PythonFile] | None = None) -> None:
        self.names: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        """Name → line of the statement that gave the name its value."""
        self.calls: list[CallExpression] = []
        """The calls that are statements on their own."""
        self.methods: list[MethodCall] = []
        """The method calls on results of calls."""
        self.notes: list[str] = []
        """Notes about statements whose effect is not known; at most ``MAX_NOTES``."""
        self._source, self._path = source, path
        self._files = {} if files is None else files
        self._files[path] = self  # before the statements are read, so that circular imports end
        self._changed: dict[int, tuple[Any, Unsupported]] = {} if files is None else files[""]._changed
        """``id`` of a value that a statement may have changed → the value, and the statement as ``Unsupported``."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # ast.parse warns about escapes in the strings of the source
                body = ast.parse(source.text()).body
            for statement in body:
                self._statement(statement)
        except SyntaxError as error:
            raise source.refuse(error.lineno or 0, f"not valid Python: {error.msg}") from None
        except (RecursionError, MemoryError):
            raise source.refuse(0, "the Python code is nested too deeply; split its expressions") from None
        except ValueError as error:
            raise source.refuse(0, f"not valid Python: {error}") from None

    def find_calls(self, classes: tuple[str, ...]) -> Iterator[tuple[str, CallExpression]]:
        """Yield (name, call) for each call of these classes in the value of a name. Call statements have no name."""
        seen: set[int] = set()
        arguments = [("", argument) for method in self.methods for argument in method.args]
        for name, root in [*self.names.items(), *(("", call) for call in self.calls), *arguments]:
            for value in _parts(root, seen):
                if isinstance(value, CallExpression) and value.last in classes:
                    yield name, value

    def check_unchanged(self, value: Any, what: str) -> None:
        """Raise ``ConfigError`` if a statement may have changed this value."""
        if (found := self._changed.get(id(value))) is not None:
            raise self._refusal(found[1], what)

    def check_plain(self, value: Any, what: str) -> None:
        """Raise ``ConfigError`` unless a value was read completely and no statement may have changed it."""
        for part in _parts(value, set()):
            self.check_unchanged(part, what)
            if isinstance(part, PythonExpression):
                raise self._refusal(part, what)

    def note(self, text: str) -> None:
        """Add a note about code whose effect is not known."""
        if text not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(text)

    def _refusal(self, found: PythonExpression, what: str) -> ConfigError:
        executed = "" if isinstance(found, Unsupported) else ", which is not executed"
        return self._source.refuse(found.line, f"{what} contains {found}{executed}; write the plain value there")

    # ---------------------------------------------------------------- statements

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                found = self._value(value)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        self._set(target.id, found, target)
                    else:
                        self._unsupported(target)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
                old, total = self.names.get(name), _sum(self.names.get(name), self._value(value), node.lineno)
                if isinstance(old, list) and isinstance(total, list):
                    old[:] = total  # the list grows in place, for all names that refer to it
                elif isinstance(total, str):
                    self.names[name] = total
                else:
                    self._unsupported(node)
            case ast.Expr(value=value):
                if isinstance(found := self._value(value), CallExpression):
                    self.calls.append(found)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    self._set(alias.asname or alias.name.split(".")[0], NameReference(alias.name, node.lineno), node)
            case ast.With(items=[ast.withitem(context_expr=ast.Call(func=func))], body=body) if (
                ast.unparse(func).split(".")[-1] == "read_base"
            ):
                for one in body:
                    if isinstance(one, ast.ImportFrom):
                        self._read_base(one)
                    else:
                        self._unsupported(one)
            case ast.Pass():
                pass
            case _:
                self._unsupported(node)

    def _set(self, name: str, value: Any, node: ast.expr | ast.stmt) -> None:
        self.names[name] = value
        self.lines[name] = node.lineno

    def _read_base(self, node: ast.ImportFrom) -> None:
        where = "." * node.level + (node.module or "")
        path = "/".join([*self._path.split("/")[:-1], *(node.module or "").split(".")]) + ".py"
        base = self._files.get(path) if node.level == 1 else None
        if node.level == 1 and base is None and (data := self._source.read_beside(path)) is not None:
            base = PythonFile(Source(path, data, self._source.read_beside, self._source.parse_yaml), path, self._files)
        if base is None:
            problem = "does not exist" if node.level == 1 else "is in another folder"
            names = ", ".join([alias.name for alias in node.names])
            self.note(f"line {node.lineno}: {where} {problem}, so {names} was not read")
        for note in base.notes if base is not None else ():
            self.note(note)
        for alias in node.names:
            if alias.name == "*" and base is not None:
                for name, value in base.names.items():
                    self._set(name, value, node)
            else:
                missing = Unsupported(f"{alias.name} of {where}, which was not read", node.lineno)
                value = missing if base is None else base.names.get(alias.name, missing)
                self._set(alias.asname or alias.name, value, node)

    def _unsupported(self, node: ast.expr | ast.stmt, text: str = "") -> Unsupported:
        """Return an ``Unsupported`` for a part of the file. Names that this part defines lose their plain value.

        Values that the part may change are marked: the lists and mappings in it, and values in paths like ``a.b[0]``.
        """
        is_value = isinstance(node, ast.expr)
        what = "an expression that is not a plain value" if is_value else "a value that a statement may change"
        found = Unsupported(text or what, node.lineno)
        for one in ast.walk(node):
            match one:
                case ast.Name(id=name, ctx=context):
                    if isinstance(value := self.names.get(name), list | dict):
                        self._changed.setdefault(id(value), (value, found))
                    if not isinstance(context, ast.Load):
                        self._set(name, found, node)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    self._set(name, Unsupported(f"the function {name}", one.lineno), node)
                case ast.ClassDef(name=name):
                    self._set(name, NameReference(name, one.lineno), node)
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if isinstance(
                    value := self.names.get(name), CallExpression
                ):
                    self.note(f"line {one.lineno}: the effect of .{method}() on {value} was not imported")
                case (
                    ast.Call(func=ast.Attribute(value=path))
                    | ast.Attribute(ctx=ast.Store() | ast.Del(), value=path)
                    | ast.Subscript(ctx=ast.Store() | ast.Del(), value=path)
                ):
                    while isinstance(path, ast.Attribute | ast.Subscript | ast.Call):
                        path = path.func if isinstance(path, ast.Call) else path.value
                    for part in _parts(self.names.get(path.id) if isinstance(path, ast.Name) else None, set()):
                        self._changed.setdefault(id(part), (part, found))
        return found

    # ---------------------------------------------------------------- expressions

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str() as text):
                half = re.search("[\ud800-\udfff]", text)
                return text if half is None else self._unsupported(node, f"the incomplete character {half[0]!a}")
            case ast.Constant(value=int() | float() | None as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Name(id=name):
                return self.names.get(name, NameReference(name, node.lineno))
            case ast.Attribute() if name := self._dotted(node):
                return NameReference(name, node.lineno)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return self._items(items)
            case ast.Dict(keys=keys, values=values):
                return self._mapping([STAR if key is None else self._value(key) for key in keys], values, node.lineno)
            case ast.Call(func=ast.Name(id="dict"), args=args, keywords=keywords) if len(args) < 2:
                names = [*[STAR for _ in args], *[one.arg or STAR for one in keywords]]
                return self._mapping(names, [*args, *[one.value for one in keywords]], node.lineno)
            case ast.Call(func=ast.Name() | ast.Attribute() as func) if name := self._dotted(func):
                if isinstance(self.names.get(name), Unsupported):
                    self._unsupported(node)  # a function defined in the file may change its arguments
                words = [one.arg or STAR for one in node.keywords]
                given = self._mapping(words, [one.value for one in node.keywords], 0)
                if isinstance(given, dict):
                    return CallExpression(name, node.lineno, tuple(self._items(node.args)), given)
            case ast.Call(func=ast.Attribute(value=ast.Call() as owner, attr=method), args=args):
                if isinstance(made := self._value(owner), CallExpression):
                    self.methods.append(MethodCall(made, method, tuple(self._items(args))))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _sum(self._value(left), self._value(right), node.lineno)
            case ast.Subscript(value=holder, slice=ast.Constant(value=key)):
                with suppress(LookupError, TypeError):
                    found: Any = self._value(holder)
                    return found[key] if type(found) in (list, dict) else self._unsupported(node)
        return self._unsupported(node)

    def _dotted(self, node: ast.expr) -> str:
        """Return a dotted name such as ``a.b.c`` if ``a`` has no value in the file; empty for any other expression."""
        name = ast.unparse(node)
        known = isinstance(node, ast.Name) or isinstance(self.names.get(name.split(".")[0]), NameReference | None)
        return name if known and re.fullmatch(r"[\w.]+", name) else ""

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            value = self._value(node.value if isinstance(node, ast.Starred) else node)
            if not isinstance(node, ast.Starred):
                items.append(value)
            elif isinstance(value, list) and len(items) + len(value) <= MAX_LENGTH:
                items += value
            else:
                items.append(Unsupported("`*` before a value that is not a list", node.lineno))
        return items

    def _mapping(self, keys: list[Any], values: list[ast.expr], line: int) -> Any:
        """Return a mapping of keys to values. An entry ``**other`` has the key ``STAR``; its entries are merged."""
        found: dict[Any, Any] = {}
        for key, node in zip(keys, values, strict=True):
            value = self._value(node)
            if key is STAR and isinstance(value, dict):
                found |= value
            elif isinstance(key, str | int):
                found[key] = value
            else:
                return Unsupported("a mapping with keys that are not plain values", line)
        return found


def _sum(one: Any, other: Any, line: int) -> Any:
    if type(one) in (str, list) and type(one) is type(other) and len(one) + len(other) <= MAX_LENGTH:
        return one + other
    return Unsupported("a sum of values that are not texts or lists", line)


def _parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield a value and all values inside it, in file order. Lists, mappings and calls are yielded only once."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        if not isinstance(one, str | int | float | None):
            seen.add(id(one))
        yield one
        if isinstance(one, CallExpression):
            waiting += reversed([*one.args, *one.keywords.values()])
        elif isinstance(one, dict):
            waiting += reversed(one.values())
        elif isinstance(one, list):
            waiting += reversed(one)
