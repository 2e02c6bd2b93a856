"""Reads plain values of a Python file from its syntax tree. Nothing is imported or executed.

The supported syntax is literals (tuples become lists), names, ``dict(…)``, ``list(…)``, ``range(…)``, ``+``, ``*`` and
``**`` of values, entries by a key, f-strings, comparisons, a few methods without side effects, comprehensions,
assignments to names, ``+=``, ``append``, ``del`` of names, loops over lists and mappings, conditions, and ``read_base``
imports from the same folder or below. All of these are evaluated only if the values in them are known.
Any other call becomes a ``CallExpression``, and any other name a ``NameReference``. All other syntax becomes
``Unsupported``, and the values that it may change are marked. An importer that needs such a value refuses the file.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gateway.core.errors import ConfigError
from gateway.importer.source import Source

MAX_LENGTH = 200_000
"""Maximum characters of a text, or entries of a list, that an expression in the file computes."""
MAX_STEPS = 1_000_000
"""Maximum statements and expressions evaluated in one file. Each repetition in a loop is counted."""
ITEMS_PER_STEP = 100
"""Number of characters of a text, or entries of a list, that count as one further step."""
MAX_NOTES = 20
STAR = object()
"""The key that represents a ``**`` entry of a mapping."""


def _replace(text: str, old: str, new: str) -> str:
    if len(text) + text.count(old) * len(new) > MAX_LENGTH:
        raise ValueError("too long")
    return text.replace(old, new)


METHODS: Mapping[tuple[type, str], Callable[..., Any]] = {
    (str, "replace"): _replace,
    (str, "strip"): str.strip,
    (str, "lower"): str.lower,
    (str, "upper"): str.upper,
    (str, "title"): str.title,
    (dict, "copy"): dict,
    (dict, "keys"): list,
    (dict, "values"): lambda value: list(value.values()),
    (dict, "items"): lambda value: [list(item) for item in value.items()],
    (list, "copy"): list,
}
"""(type, name) of a method without side effects → function with the same result. The arguments must be texts.

If the function raises ``ValueError``, the result is not known.
"""
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}


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
    """A method call on the result of another call, such as ``Module("name").prompt(prompter)``. No call is executed."""

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
        """The calls that are whole statements."""
        self.methods: list[MethodCall] = []
        """The method calls on results of calls."""
        self.notes: list[str] = []
        """Notes about statements whose effect is not known; at most ``MAX_NOTES``."""
        self._source, self._path = source, path
        self._steps = 0
        self._files = {} if files is None else files
        self._files[path] = self  # before the statements are read, so that circular imports end
        self._changed: dict[int, tuple[Any, Unsupported]] = {} if files is None else files[""]._changed
        """``id`` of a value that a statement may have changed → (the value, the statement as ``Unsupported``)."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # ast.parse warns about escapes in the strings of the source
                body = ast.parse(source.text()).body
            for statement in body:
                self._statement(statement)
        except SyntaxError as error:
            raise source.refuse(error.lineno or 0, f"the file is not valid Python: {error.msg}") from None
        except (RecursionError, MemoryError):
            raise source.refuse(0, "the Python code is nested too deeply; split its expressions") from None
        except ValueError as error:
            raise source.refuse(0, f"the file is not valid Python: {error}") from None

    def find_calls(self, classes: tuple[str, ...]) -> Iterator[tuple[str, CallExpression]]:
        """Yield (name, call) for each call of these classes.

        ``name``: the variable whose value contains the call; empty if no variable contains the call.
        """
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
        """Raise ``ConfigError`` if a value was not read completely, or if a statement may have changed the value."""
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
        self._count_steps(1, node)
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
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value])) if (
                isinstance(owner := self.names.get(name), list) and len(owner) < MAX_LENGTH
            ):
                owner.append(self._value(value))
            case ast.For(target=target, iter=items, body=body, orelse=[]) if (
                not any(isinstance(one, ast.Break | ast.Continue) for one in ast.walk(node))
                and (found := self._iterated(items)) is not None
            ):
                for item in found:
                    self._bind(target, item)
                    for one in body:
                        self._statement(one)
            case ast.If(test=test, body=body, orelse=otherwise) if isinstance(holds := self._value(test), bool):
                for one in body if holds else otherwise:
                    self._statement(one)
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
            case ast.Delete(targets=targets) if all(isinstance(one, ast.Name) for one in targets):
                for name in [ast.unparse(one) for one in targets]:
                    self._set(name, Unsupported(f"{name}, which was deleted", node.lineno), node)
            case ast.Pass():
                pass
            case _:
                self._unsupported(node)

    def _iterated(self, node: ast.expr) -> list[Any] | None:
        """Return the items of a loop; None if the items are not known. A list is returned without a copy."""
        items = self._unchanged(node)
        return items if isinstance(items, list) else list(items) if isinstance(items, dict) else None

    def _bind(self, target: ast.expr, item: Any) -> None:
        """Assign an item to the name or names of a loop."""
        if isinstance(target, ast.Name):
            self._set(target.id, item, target)
        elif isinstance(target, ast.Tuple) and isinstance(item, list) and len(item) == len(target.elts):
            for one, value in zip(target.elts, item, strict=True):
                self._bind(one, value)
        else:
            self._unsupported(target)

    def _each(self, generator: ast.comprehension, *nodes: ast.expr) -> list[list[Any]] | None:
        """Evaluate expressions of a comprehension for each item. Return None if the items are not known."""
        if generator.ifs or (items := self._iterated(generator.iter)) is None:
            return None
        targets = {one.id for one in ast.walk(generator.target) if isinstance(one, ast.Name)}
        outside = {name: (self.names[name], self.lines[name]) for name in targets if name in self.names}
        found: list[list[Any]] = []
        for item in items:
            self._bind(generator.target, item)
            found.append([self._value(node) for node in nodes])
        for name in targets:  # these names keep their value outside of the comprehension
            self.names.pop(name, None)
            self.lines.pop(name, None)
            if name in outside:
                self.names[name], self.lines[name] = outside[name]
        return found

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

        Values that the part may change are marked: its lists and mappings, and values in paths like ``a.b[0]``.
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
                        if isinstance(part, list | dict | CallExpression):  # equal texts may be one object
                            self._changed.setdefault(id(part), (part, found))
        return found

    # ---------------------------------------------------------------- expressions

    def _count_steps(self, steps: int, node: ast.expr | ast.stmt) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise self._source.refuse(node.lineno, "the code needs too many steps; write the plain values instead")

    def _value(self, node: ast.expr) -> Any:
        value = self._evaluated(node)
        self._count_steps(1 + (len(value) // ITEMS_PER_STEP if isinstance(value, str | list | dict) else 0), node)
        return value

    def _unchanged(self, node: ast.expr) -> Any:
        """Return the value of an expression; ``Unsupported`` if a statement may have changed the value."""
        value = self._value(node)
        return self._changed[id(value)][1] if id(value) in self._changed else value

    def _evaluated(self, node: ast.expr) -> Any:
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
            case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if "range" not in self.names:
                numbers = self._items(args)
                if numbers and all(isinstance(one, int) for one in numbers):
                    with suppress(TypeError, ValueError, OverflowError):
                        counted = range(*numbers)
                        if len(counted) <= MAX_LENGTH:
                            return list(counted)
            case ast.Call(func=ast.Name(id="list"), args=[item], keywords=[]) if "list" not in self.names:
                if (listed := self._iterated(item)) is not None:
                    return list(listed)
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
            case ast.Call(func=ast.Attribute(value=holder, attr=method), args=args, keywords=[]) if (
                apply := METHODS.get((type(owner := self._value(holder)), method))
            ) and id(owner) not in self._changed:
                given = self._items(args)
                if all(isinstance(one, str) for one in given) and (isinstance(owner, str) or not given):
                    with suppress(TypeError, ValueError):
                        return apply(owner, *given)
            case ast.JoinedStr(values=parts):
                shown = [self._value(one) for one in parts]
                if all(isinstance(one, str) for one in shown) and sum(map(len, shown)) <= MAX_LENGTH:
                    return "".join(shown)
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                if isinstance(one := self._value(value), str | int):
                    return str(one)
            case ast.ListComp(elt=item, generators=[generator]):
                if (each := self._each(generator, item)) is not None:
                    return [one for (one,) in each]
            case ast.DictComp(key=key, value=item, generators=[generator]):
                each = self._each(generator, key, item)
                if each is not None and all(isinstance(one, str | int) for one, _ in each):
                    return dict(each)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if compare := COMPARISONS.get(type(op)):
                one, other = self._value(left), self._value(right)
                plain = one, *(other if isinstance(other, list) else [other])
                if all(isinstance(value, str | int | None) for value in plain) and id(other) not in self._changed:
                    with suppress(TypeError):
                        return compare(one, other)
            case ast.IfExp(test=test, body=body, orelse=otherwise) if isinstance(holds := self._value(test), bool):
                return self._value(body if holds else otherwise)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _sum(self._unchanged(left), self._unchanged(right), node.lineno)
            case ast.Subscript(value=holder, slice=ast.Constant() | ast.Name() as key):
                with suppress(LookupError, TypeError):
                    found: Any = self._unchanged(holder)
                    return found[self._value(key)] if type(found) in (list, dict) else self._unsupported(node)
        return self._unsupported(node)

    def _dotted(self, node: ast.expr) -> str:
        """Return a dotted name such as ``a.b.c`` if ``a`` has no value in the file; empty for any other expression."""
        name = ast.unparse(node)
        known = isinstance(node, ast.Name) or isinstance(self.names.get(name.split(".")[0]), NameReference | None)
        return name if known and re.fullmatch(r"[\w.]+", name) else ""

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            value = self._unchanged(node.value) if isinstance(node, ast.Starred) else self._value(node)
            if not isinstance(node, ast.Starred):
                items.append(value)
            elif isinstance(value, list) and len(items) + len(value) <= MAX_LENGTH:
                items += value
            else:
                items.append(Unsupported("`*` before a value that is not a list", node.lineno))
        return items

    def _mapping(self, keys: list[Any], values: list[ast.expr], line: int) -> Any:
        """Return a mapping of keys to values. For ``**other``, the key is ``STAR``, and the entries are merged."""
        found: dict[Any, Any] = {}
        for key, node in zip(keys, values, strict=True):
            value = self._unchanged(node) if key is STAR else self._value(node)
            if key is STAR and isinstance(value, dict):
                found |= value
            elif isinstance(key, str | int):
                found[key] = value
            else:
                return Unsupported("a mapping with keys that are not plain values", line)
        return found


def _sum(one: Any, other: Any, line: int) -> Any:
    if type(one) is int and type(other) is int:
        return one + other
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
