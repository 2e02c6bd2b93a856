"""What does a Python file say, read as syntax? Names, literals and calls; nothing is imported or executed.

Statements are followed as far as they bind plain values: ``a = "x" + b``, ``dict(a, c=1)``, ``models += […]``,
``config["key"] = 1``. Everything else leaves an ``Unread`` behind, which says where it stands and refuses to be used.
What methods, functions of the file and stores that are not followed may change is marked or noted (``python_changes``).
``read_base`` imports are followed into files that lie beside.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from typing import Any

from gateway.importer.python_source.changes import Changes
from gateway.importer.python_source.expressions import Expressions, total
from gateway.importer.python_source.values import MOST_ITEMS, Called, Module, Named, Unread
from gateway.importer.source import Source

MOST_FILES = 16
"""Files that one source leads to."""
MOST_STARRED = 200_000
"""Names that one file takes by ``import *``."""


def read_module(source: Source) -> Module:
    """The file's names and values. Raises ``ConfigError`` for what is no Python, or too deep to be looked at."""
    return _Reader(source, {}).module


def _parsed(source: Source) -> ast.Module:
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
        self._expressions = Expressions(source, self.module.names)
        self._changes = Changes(self.module)
        self._taken: set[int] = set()
        """Modules whose notes and marks are known here, by identity."""
        self._starred = 0
        self._read = read
        """Files that were followed, by path; one that is being read is there already, so that circles end."""
        self._path = path
        read[path] = self.module
        for statement in _parsed(source).body:
            self._statement(statement)

    # ------------------------------------------------------------ statements

    def _statement(self, node: ast.stmt) -> None:
        self._changes.by_calls(node, self._grown(node))
        match node:
            case ast.Assign(targets=targets, value=value):
                found = self._expressions.value(value)
                for target in targets:
                    self._bind(target, found, node.lineno)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self._bind(target, self._expressions.value(value), node.lineno)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value) if name in self.module.names:
                self._extend(name, self._expressions.value(value), node.lineno)
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
            case ast.Subscript(value=inner, slice=ast.Constant(value=str() | int() as key)) if isinstance(
                holder := self._expressions.value(inner), dict
            ):
                holder[key] = value
            case ast.Tuple(elts=names) | ast.List(elts=names) if (
                isinstance(value, list | tuple)
                and len(names) == len(value)
                and all(isinstance(name, ast.Name) for name in names)
            ):
                for inner, one in zip(names, value, strict=True):
                    self._bind(inner, one, line)
            case _:
                self._spoil(target)

    def _set(self, name: str, value: Any, line: int) -> None:
        self.module.names[name] = value
        self.module.lines[name] = line

    def _extend(self, name: str, more: Any, line: int) -> None:
        """As Python does: a list grows where it is, for all its names; a text becomes another."""
        value = self.module.names[name]
        if isinstance(value, list):
            if isinstance(more, list | tuple) and len(value) + len(more) <= MOST_ITEMS:
                value += more
            else:
                self._changes.mark(value, Unread("what was added to it", line))
        else:
            self._set(name, total(value, more, line), line)

    def _grown(self, node: ast.stmt) -> ast.Call | None:
        """The call of ``append`` or ``extend`` that this statement is, if it is followed."""
        match node:
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend"), args=[_], keywords=[]
                ) as call
            ) if isinstance(self.module.names.get(name), list):
                return call
        return None

    def _call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[one], keywords=[]) if (
                isinstance(self.module.names.get(name), list)
            ):
                self.module.names[name].append(self._expressions.value(one))
                return
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="extend"), args=[more], keywords=[]) if (
                isinstance(self.module.names.get(name), list)
            ):
                self._extend(name, self._expressions.value(more), node.lineno)
                return
        called = self._expressions.value(node)
        if isinstance(called, Called):
            self.module.calls.append(called)

    def _spoil(self, node: ast.AST) -> None:
        """A statement that is not followed: what it speaks of is no longer known."""
        line = getattr(node, "lineno", 0)
        why = Unread(f"what the {_statement_name(node)} makes of it", line)
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._set(inner.name, Unread(f"the {_statement_name(inner)} {inner.name}", inner.lineno), inner.lineno)
            if isinstance(inner, ast.Attribute | ast.Subscript) and isinstance(inner.ctx, ast.Store | ast.Del):
                self._changes.by_store(inner, why)
            if isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Name):
                self._changes.mark(self.module.names.get(inner.target.id), why)  # which others may hold as well
            if not isinstance(inner, ast.Name):
                continue
            if isinstance(inner.ctx, ast.Store | ast.Del):
                self._set(inner.id, why, line)
            elif isinstance(value := self.module.names.get(inner.id), list | dict | set):
                self._changes.mark(value, why)

    def _follow(self, node: ast.ImportFrom) -> None:
        """A ``read_base`` import, where its file lies beside."""
        names = ", ".join(alias.name for alias in node.names)
        where = "." * node.level + (node.module or "")
        path = f"{(node.module or '').replace('.', '/')}.py"
        folder = self._path.rpartition("/")[0]
        path = f"{folder}/{path}" if folder else path
        known, why = None, ""
        if node.level != 1:
            why = "lies in another folder"
        elif path in self._read:
            known = self._read[path]
        elif len(self._read) >= MOST_FILES:
            why = f"is one file too many, {MOST_FILES} are read"
        elif not node.module or (data := self.source.beside(path)) is None:
            why = "is not there"
        else:
            known = _Reader(Source(path, data, self.source.beside, self.source.parse), self._read, path).module
        if known is None:
            self.module.note(f"line {node.lineno}: {where} {why}, so {names} was not read")
        self._take(node, known, where)

    def _take(self, node: ast.ImportFrom, known: Module | None, where: str) -> None:
        for alias in node.names:
            name = alias.asname or alias.name
            if known is None:
                self._set(name, Unread(f"{alias.name} of {where}, which was not read", node.lineno), node.lineno)
            elif alias.name == "*":
                self._starred += len(known.names)
                if self._starred > MOST_STARRED:
                    raise self.source.refuse(node.lineno, f"`import *` brings more than {MOST_STARRED} names in all")
                for one, value in known.names.items():
                    self._set(one, value, node.lineno)
            else:
                missing = Unread(f"{alias.name}, which {where} does not bind", node.lineno)
                self._set(name, known.names.get(alias.name, missing), node.lineno)
        if known is not None and id(known) not in self._taken:
            self._taken.add(id(known))
            self.module.spoilt.update(known.spoilt)
            for note in known.noted:
                self.module.note(note)
            self.module.untold += known.untold


def _is_base(call: ast.Call) -> bool:
    func = call.func
    return (func.id if isinstance(func, ast.Name) else getattr(func, "attr", "")) == "read_base"


_STATEMENTS: Mapping[type[ast.AST], str] = {
    ast.If: "`if`", ast.For: "`for`", ast.While: "`while`", ast.With: "`with`", ast.Try: "`try`", ast.Delete: "`del`",
    ast.FunctionDef: "function", ast.AsyncFunctionDef: "function", ast.ClassDef: "class", ast.Match: "`match`",
    ast.AugAssign: "assignment",
}  # fmt: skip


def _statement_name(node: ast.AST) -> str:
    return _STATEMENTS.get(type(node), "statement")
