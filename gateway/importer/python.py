"""What does a Python file say, read as syntax? Names, literals and calls; nothing is imported or executed.

Statements are followed as far as they bind plain values: ``a = "x" + b``, ``dict(a, c=1)``, ``models += […]``,
``config["key"] = 1``. Everything else leaves an ``Unread`` behind, which says where it stands and refuses to be used.
``read_base`` imports are followed into files that lie beside.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.core.errors import ConfigError
from gateway.importer.source import Source

MOST_NESTED = 60
"""Levels of one expression."""
MOST_ITEMS = 20_000
MOST_TEXT = 256 * 1024
"""Characters that a text put together may have."""
MOST_FILES = 16
"""Files that one source leads to."""
ADDS = (str, list, tuple)


@dataclass(frozen=True, slots=True, eq=False)
class Unread:
    """Something that is no plain value."""

    what: str
    line: int

    def __str__(self) -> str:
        return f"{self.what} (line {self.line})"


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """A name that no statement of the file gives a value, such as an imported class."""

    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} (line {self.line})"

    @property
    def last(self) -> str:
        """The part behind the last dot."""
        return self.name.rsplit(".", 1)[-1]


@dataclass(frozen=True, slots=True, eq=False)
class Called:
    """A call that stays a call, such as a constructor's."""

    name: str
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]
    line: int

    def __str__(self) -> str:
        return f"{self.name}(…) (line {self.line})"

    @property
    def last(self) -> str:
        """The name behind the last dot."""
        return self.name.rsplit(".", 1)[-1]


@dataclass(slots=True)
class Module:
    """What a file binds, in the order of the file."""

    names: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    """Where each name got its value."""
    calls: list[Called] = field(default_factory=list)
    """Calls that stand as statements."""
    notes: list[str] = field(default_factory=list)
    """What was not followed, and why."""
    spoilt: dict[int, tuple[Any, Unread]] = field(default_factory=dict)
    """Values that something else may have changed, by identity; kept, so that no other value gets theirs."""

    def find_calls(self, names: tuple[str, ...]) -> Iterator[tuple[str, Called]]:
        """Every call of one of these names, with the name it is bound to; calls inside of calls and lists too."""
        roots = [*self.names.items(), *(("", call) for call in self.calls)]
        seen: set[int] = set()
        for name, value in roots:
            waiting = [value]
            while waiting:
                one = waiting.pop(0)
                if id(one) in seen or isinstance(one, str | int | float | None):
                    continue
                seen.add(id(one))
                if isinstance(one, Called):
                    if one.last in names:
                        yield name, one
                    waiting = [*one.args, *one.keywords.values(), *waiting]
                elif isinstance(one, dict):
                    waiting = [*one.values(), *waiting]
                elif isinstance(one, list | tuple):
                    waiting = [*one, *waiting]

    def trouble(self, value: Any) -> Unread | Named | Called | None:
        """The first thing inside a value that is not plain; None: all of it is."""
        waiting = [value]
        for _ in range(MOST_ITEMS):
            if not waiting:
                return None
            one = waiting.pop()
            if isinstance(one, Unread | Named | Called):
                return one
            if id(one) in self.spoilt:
                return self.spoilt[id(one)][1]
            if isinstance(one, dict):
                waiting.extend([*one.keys(), *one.values()])
            elif isinstance(one, list | tuple | set):
                waiting.extend(one)
        return Unread(f"a value of more than {MOST_ITEMS} parts", 0)


def read_module(source: Source) -> Module:
    """The file's names and values. Raises ``ConfigError`` for what is no Python, or too deep to be looked at."""
    return _Reader(source, {}).module


def parsed(source: Source) -> ast.Module:
    """The syntax tree. Raises ``ConfigError``."""
    text = source.text()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in foreign strings
            return ast.parse(text)
    except SyntaxError as error:
        raise source.refuse(error.lineno or 0, f"no Python that {_version()} reads: {error.msg}") from None
    except (RecursionError, MemoryError, ValueError) as error:
        why = "it nests too deeply" if isinstance(error, RecursionError | MemoryError) else str(error)
        raise source.refuse(0, f"cannot be read as Python: {why}") from None


def _version() -> str:
    import platform

    return f"Python {platform.python_version()}"


class _Reader:
    """Follows the statements of one file."""

    def __init__(self, source: Source, read: dict[str, Module], path: str = "") -> None:
        self.source = source
        self.module = Module()
        self._read = read
        """Files that were followed, by path; one that is being read is there already, so that circles end."""
        self._path = path
        self._bases: set[int] = set()
        read[path] = self.module
        for statement in parsed(source).body:
            self._statement(statement)

    # ------------------------------------------------------------ statements

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                found = self._value(value)
                for target in targets:
                    self._bind(target, found, node.lineno)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self._bind(target, self._value(value), node.lineno)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value) if name in self.module.names:
                self._extend(name, self._value(value), node.lineno)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=ast.Call() as call):
                self._call(call)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    self._set(alias.asname or alias.name.split(".")[0], Named(alias.name, node.lineno), node.lineno)
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as opened)], body=body) if _is_base(opened):
                for inner in body:
                    if isinstance(inner, ast.ImportFrom):
                        self._follow(inner)
                    elif not isinstance(inner, ast.Pass):
                        self._spoil(inner)
            case _:
                self._spoil(node)

    def _bind(self, target: ast.expr, value: Any, line: int) -> None:
        match target:
            case ast.Name(id=name):
                self._set(name, value, line)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)) if self._holds(name, key):
                self.module.names[name][key] = value
            case ast.Tuple(elts=names) | ast.List(elts=names) if (
                isinstance(value, list | tuple)
                and len(names) == len(value)
                and all(isinstance(name, ast.Name) for name in names)
            ):
                for inner, one in zip(names, value, strict=True):
                    self._bind(inner, one, line)
            case _:
                self._spoil(target)

    def _holds(self, name: str, key: Any) -> bool:
        return isinstance(self.module.names.get(name), dict) and isinstance(key, str | int)

    def _set(self, name: str, value: Any, line: int) -> None:
        self.module.names[name] = value
        self.module.lines[name] = line

    def _extend(self, name: str, more: Any, line: int) -> None:
        """As Python does: a list grows where it is, for all its names; a text becomes another."""
        value = self.module.names[name]
        if isinstance(value, list) and isinstance(more, list) and len(value) + len(more) <= MOST_ITEMS:
            value += more
        else:
            self._set(name, _sum(value, more, line), line)

    def _call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[one], keywords=[]) if (
                isinstance(self.module.names.get(name), list)
            ):
                self.module.names[name].append(self._value(one))
                return
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="extend"), args=[more], keywords=[]) if (
                isinstance(self.module.names.get(name), list) and isinstance(found := self._value(more), list)
            ):
                self._extend(name, found, node.lineno)
                return
        if isinstance(node.func, ast.Attribute):
            self._spoil(node.func)  # a method may change what it is called on
        called = self._value(node)
        if isinstance(called, Called):
            self.module.calls.append(called)

    def _spoil(self, node: ast.AST) -> None:
        """A statement that is not followed: what it speaks of is no longer known."""
        line = getattr(node, "lineno", 0)
        why = Unread(f"what the {_statement_name(node)} makes of it", line)
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._set(inner.name, Unread(f"the {_statement_name(inner)} {inner.name}", inner.lineno), inner.lineno)
            if not isinstance(inner, ast.Name):
                continue
            if isinstance(inner.ctx, ast.Store | ast.Del):
                self._set(inner.id, why, line)
            elif isinstance(value := self.module.names.get(inner.id), list | dict | set):
                self.module.spoilt[id(value)] = (value, why)

    def _follow(self, node: ast.ImportFrom) -> None:
        """A ``read_base`` import, where its file lies beside."""
        names = ", ".join(alias.name for alias in node.names)
        where = "." * node.level + (node.module or "")
        path = f"{(node.module or '').replace('.', '/')}.py"
        folder = self._path.rpartition("/")[0]
        path = f"{folder}/{path}" if folder else path
        known = self._read.get(path)
        data = None
        if node.level == 1 and node.module and known is None and len(self._read) < MOST_FILES:
            data = self.source.beside(path)
        if known is None and data is None:
            why = "lies in another folder" if node.level != 1 else "is not there"
            self.module.notes.append(f"line {node.lineno}: {where} {why}, so {names} was not read")
        elif known is None and data is not None:
            below = Source(path, data, self.source.beside, self.source.parse)
            known = _Reader(below, self._read, path).module
        self._take(node, known, where)

    def _take(self, node: ast.ImportFrom, known: Module | None, where: str) -> None:
        for alias in node.names:
            name = alias.asname or alias.name
            if known is None:
                self._set(name, Unread(f"{alias.name} of {where}, which was not read", node.lineno), node.lineno)
            elif alias.name == "*":
                for one, value in known.names.items():
                    self._set(one, value, node.lineno)
            else:
                missing = Unread(f"{alias.name}, which {where} does not bind", node.lineno)
                self._set(name, known.names.get(alias.name, missing), node.lineno)
        if known is not None:
            self.module.spoilt.update(known.spoilt)
            self.module.notes.extend(note for note in known.notes if note not in self.module.notes)

    # ------------------------------------------------------------ values

    def _value(self, node: ast.expr, depth: int = 0) -> Any:
        if depth > MOST_NESTED:
            raise self.source.refuse(
                node.lineno, f"nests deeper than {MOST_NESTED} levels: copy what is needed out of it"
            )
        deeper = depth + 1
        match node:
            case ast.Constant(value=value):
                plain = isinstance(value, str | int | float | None)
                return value if plain else Unread(f"a value of type {type(value).__name__}", node.lineno)
            case ast.Name(id=name):
                return self.module.names.get(name, Named(name, node.lineno))
            case ast.Attribute():
                return self._dotted(node)
            case ast.JoinedStr(values=parts):
                if all(isinstance(part, ast.Constant) for part in parts):
                    return "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
                return Unread("an f-string with an expression", node.lineno)
            case ast.List(elts=items):
                return self._items(items, deeper)
            case ast.Tuple(elts=items):
                return tuple(self._items(items, deeper))
            case ast.Dict():
                return self._dict(node, deeper)
            case ast.Call():
                return self._called(node, deeper)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _sum(self._value(left, deeper), self._value(right, deeper), node.lineno)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
                return _entry(self._value(inner, deeper), key, node.lineno)
        return Unread(_expression_name(node), node.lineno)

    def _dotted(self, node: ast.Attribute) -> Any:
        parts: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            return Unread("an attribute of an expression", node.lineno)
        root = self.module.names.get(inner.id)
        if root is not None and not isinstance(root, Named):
            return Unread(f"an attribute of {inner.id}", node.lineno)
        return Named(".".join([inner.id, *reversed(parts)]), node.lineno)

    def _items(self, nodes: list[ast.expr], depth: int) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if not isinstance(node, ast.Starred):
                items.append(self._value(node, depth))
                continue
            more = self._value(node.value, depth)
            items.extend(more if isinstance(more, list | tuple) else [Unread("a * of what is no list", node.lineno)])
            if len(items) > MOST_ITEMS:
                raise self.source.refuse(node.lineno, f"a list of more than {MOST_ITEMS} entries")
        return items

    def _dict(self, node: ast.Dict, depth: int) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            more = self._value(value, depth)
            if key is None:
                if not isinstance(more, dict):
                    return Unread("a ** of what is no mapping", node.lineno)
                found.update(more)
                continue
            name = self._value(key, depth)
            if not isinstance(name, str | int):
                return Unread("a mapping with keys that are no plain texts", node.lineno)
            found[name] = more
        return found

    def _called(self, node: ast.Call, depth: int) -> Any:
        func = node.func
        name = func.id if isinstance(func, ast.Name) else ""
        if isinstance(func, ast.Attribute):
            dotted = self._dotted(func)
            name = dotted.name if isinstance(dotted, Named) else ""
        if not name:
            return Unread("the result of a method", node.lineno)
        args = self._items(node.args, depth)
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self._value(keyword.value, depth)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif isinstance(value, dict):
                keywords.update(value)
            else:
                return Unread("a call with ** of what is no mapping", node.lineno)
        if name == "dict" and not args:
            return keywords
        if name == "dict" and len(args) == 1 and isinstance(args[0], dict):
            return {**args[0], **keywords}
        if name in ("list", "tuple") and len(args) == 1 and not keywords and isinstance(args[0], list | tuple):
            return list(args[0]) if name == "list" else tuple(args[0])
        return Called(name, tuple(args), keywords, node.lineno)


def _sum(one: Any, other: Any, line: int) -> Any:
    if any(isinstance(one, kind) and isinstance(other, kind) for kind in ADDS):
        if len(one) + len(other) > (MOST_TEXT if isinstance(one, str) else MOST_ITEMS):
            return Unread("a sum that is too long", line)
        return one + other
    return Unread("a sum of what is not all text or all lists", line)


def _entry(value: Any, key: Any, line: int) -> Any:
    if isinstance(value, dict) and isinstance(key, str | int) and key in value:
        return value[key]
    if isinstance(value, list | tuple) and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    return Unread(f"an entry {key!r} that is not there", line)


def _is_base(call: ast.Call) -> bool:
    func = call.func
    return (func.id if isinstance(func, ast.Name) else getattr(func, "attr", "")) == "read_base"


_STATEMENTS: Mapping[type[ast.AST], str] = {
    ast.If: "`if`", ast.For: "`for`", ast.While: "`while`", ast.With: "`with`", ast.Try: "`try`", ast.Delete: "`del`",
    ast.FunctionDef: "function", ast.AsyncFunctionDef: "function", ast.ClassDef: "class", ast.Match: "`match`",
    ast.AugAssign: "assignment",
}  # fmt: skip
_EXPRESSIONS: Mapping[type[ast.AST], str] = {
    ast.ListComp: "a comprehension", ast.DictComp: "a comprehension", ast.SetComp: "a comprehension",
    ast.GeneratorExp: "a comprehension", ast.Lambda: "a lambda", ast.IfExp: "an `if` inside an expression",
    ast.BinOp: "a calculation", ast.BoolOp: "a calculation", ast.Compare: "a comparison", ast.Set: "a set",
}  # fmt: skip


def _statement_name(node: ast.AST) -> str:
    return _STATEMENTS.get(type(node), "statement")


def _expression_name(node: ast.AST) -> str:
    return _EXPRESSIONS.get(type(node), "an expression")


def refuse_trouble(module: Module, value: Any, what: str, source: Source) -> ConfigError | None:
    """The error for a value that is not plain; None: it is."""
    found = module.trouble(value)
    if found is None:
        return None
    line = found.line
    told = f"{found}" if isinstance(found, Unread) else f"{found}, which is not executed"
    return source.refuse(line, f"{what} holds {told}: write the plain value there")
