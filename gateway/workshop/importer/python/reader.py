"""Reads the plain values of a Python file: literals, ``dict()``, names, sums of lists and texts, ``read_base`` imports.

A statement that is not read is refused, because it may change any value. An expression that is not read becomes
``Unsupported`` if it has no effect, else it is refused too. A call is not executed; it becomes a ``CallExpression``.
"""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gateway.core.errors import ConfigError
from gateway.workshop.importer.python.values import (
    RESOLVED,
    WAYS,
    CallExpression,
    LocalFunction,
    NameReference,
    TupleValue,
    Unsupported,
)
from gateway.workshop.importer.source import Source

MAX_TEXT = 384 * 1024
"""Maximum characters of a file. The syntax tree of short statements takes 500 times as many bytes."""
MAX_STEPS = 300_000
"""Maximum steps for one file and the files it reads: statements, expressions and imported names."""
ITEMS_PER_STEP = 20
"""Number of bytes of a file, characters of a text, or entries of a list, that count as one further step."""
STEPS_PER_FILE = 100
"""Number of steps for each look for a file, in addition to the bytes of the file."""
PROMPT = re.compile(r"^\s*(>>>|\.\.\.)(?: |$)")
"""Matches the prompt at the beginning of a line of a Python session. The lines without a prompt are output."""
WORDS: Mapping[type[ast.AST], str] = {
    ast.For: "a loop",
    ast.While: "a loop",
    ast.If: "a condition",
    ast.IfExp: "a condition",
    ast.ClassDef: "a class",
    ast.ListComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.JoinedStr: "an f-string",
    ast.Lambda: "a lambda",
}
"""Kind of syntax that is not read → its name in messages."""
EFFECTS = (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
"""The expressions that may change a value."""
CODE = ("exec", "eval", "globals", "locals", "vars")
"""The functions that may set any name."""
FIELDS = re.compile(r"(?:[^{}]|\{\{|\}\}|\{\w*\})*")
"""Matches a text for ``format`` whose fields have no format, attribute or entry."""


@dataclass(slots=True)
class Progress:
    """The state that a file shares with the files it reads."""

    steps: int = 0
    notes: list[str] = field(default_factory=list)
    """Notes about calls whose effect is not known."""


class Reader:
    """Reads one file. ``names`` and the other attributes are complete after ``run``."""

    def __init__(self, source: Source, progress: Progress) -> None:
        self.names: dict[str, Any] = {}
        self.lines: dict[str, list[int]] = {}
        """Name → lines of the statements that set it."""
        self.calls: list[CallExpression] = []
        """The calls that are whole statements."""
        self.methods: list[CallExpression] = []
        """The calls of methods on results of calls."""
        self._source, self._progress = source, progress
        self._bases: dict[str, Reader] = {}
        """Path → the file that a ``read_base`` block of this file reads."""

    def run(self) -> None:
        """Read the file. Raises ``ConfigError``, and ``RecursionError`` or ``MemoryError`` for deep nesting."""
        self._count(len(self._source.data) // ITEMS_PER_STEP, 0)
        for node in self._tree().body:
            self._statement(node)

    def _tree(self) -> ast.Module:
        text = self._source.text()
        if len(text) > MAX_TEXT:
            limit = f"{MAX_TEXT // 1024} KiB"
            raise self._source.refuse(0, f"the code is larger than {limit}; import the resolved config ({RESOLVED})")
        if any(map(PROMPT.match, lines := text.splitlines())):
            text = "\n".join([line[found.end() :] if (found := PROMPT.match(line)) else "" for line in lines])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # ast.parse warns about escapes in the strings of the source
                return ast.parse(text)
        except (SyntaxError, ValueError) as error:
            line, message = getattr(error, "lineno", 0) or 0, getattr(error, "msg", str(error))
            raise self._source.refuse(line, f"the file is not valid Python: {message}") from None

    def _count(self, steps: int, line: int) -> None:
        self._progress.steps += steps
        if self._progress.steps > MAX_STEPS:
            raise self._source.refuse(line, "the code needs too many steps; write the plain values instead")

    def _refusal(self, node: ast.expr | ast.stmt, text: str = "") -> ConfigError:
        return self._source.refuse(node.lineno, f"{text or WORDS.get(type(node), 'this code')} is not read; {WAYS}")

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(value=value, targets=targets):
                found = self._value(value)
                for target in targets:
                    if not isinstance(target, ast.Name):
                        raise self._refusal(node, f"an assignment to {ast.unparse(target)[:60]}")
                    self._set(target.id, found, node)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value) if type(
                old := self.names.get(name)
            ) is list and isinstance(found := self._value(value), list):
                old += found  # the list grows in place, for all names that refer to it
            case ast.Expr(value=value):
                found = self._value(value)
                if isinstance(found, CallExpression):
                    self.calls.append(found)
                    self._check_arguments(found, node)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for alias in aliases:
                    found = NameReference(alias.name, node.lineno, self._source)
                    self._set(alias.asname or alias.name.split(".")[0], found, node)
            case ast.With(items=[ast.withitem(context_expr=ast.Call(func=function))], body=body) if (
                ast.unparse(function).split(".")[-1] == "read_base"
            ):
                for one in body:
                    self._read_base(one)
            case ast.FunctionDef(name=name, decorator_list=decorators, args=given):
                for default in (*decorators, *given.defaults, *filter(None, given.kw_defaults)):
                    self._value(default)
                self._set(name, LocalFunction(f"the function {name}", node.lineno, self._source), node)
            case ast.If(test=test, orelse=[]) if ast.unparse(test) == "__name__ == '__main__'":
                pass
            case _:
                raise self._refusal(node)

    def _set(self, name: str, value: Any, node: ast.stmt) -> None:
        self.names[name] = value
        self.lines.setdefault(name, []).append(node.lineno)

    def _check_arguments(self, call: CallExpression, node: ast.expr | ast.stmt) -> None:
        """Raise ``ConfigError`` if a call may change a list or mapping."""
        given = [one for one in (*call.args, *call.keywords.values()) if not isinstance(one, CallExpression)]
        if not call.is_inert and any(isinstance(one, list | dict | Unsupported) for one in given):
            raise self._refusal(node, f"the call {call.text[:60]}(), which may change its arguments,")

    def _read_base(self, node: ast.stmt) -> None:
        if not isinstance(node, ast.ImportFrom):
            raise self._refusal(node)
        base = self._base(node, where := "." * node.level + (node.module or ""))
        for alias in node.names:
            chosen = list(base.names) if alias.name == "*" else [alias.name]
            self._count(len(chosen), node.lineno)
            for name in chosen:
                if name not in base.names:
                    raise self._source.refuse(node.lineno, f"{where} has no {name}")
                self._set(alias.asname or name, base.names[name], node)

    def _base(self, node: ast.ImportFrom, where: str) -> Reader:
        """Read the file of a ``read_base`` import. Raises ``ConfigError`` if the file is not found.

        Each file that imports a base has values of its own, as in mmengine, so a base may be read several times.
        """
        relative, roots = (node.module or "").replace(".", "/") + ".py", self._source.roots
        package = relative.partition("/")[0]
        folders = [*[posixpath.dirname(root) for root in roots if posixpath.basename(root) == package], *roots]
        if node.level:
            folders = [posixpath.join(posixpath.dirname(self._source.path), *[".."] * (node.level - 1))]
        for path in [posixpath.normpath(posixpath.join(folder, relative)) for folder in folders]:
            self._count(STEPS_PER_FILE, node.lineno)
            if path not in self._bases and (data := self._source.read_file(path)) is not None:
                self._bases[path] = Reader(self._source.other(path, data), self._progress)
                self._bases[path].run()
            if path in self._bases:
                return self._bases[path]
        if node.level == 1:
            way = f"put {relative} there (a link out of the folder is not read), or correct the name"
            reason = f"was not found beside {self._source.short_name}; {way}"
        else:
            searched = " and ".join(["the config's folder", *roots])
            reason = f"was not found in {searched}; name the folder of its package with --root"
        raise self._source.refuse(node.lineno, f"{where} {reason}")

    def _value(self, node: ast.expr) -> Any:
        """Return the value of an expression. Raises ``ConfigError`` for an expression that may change a value."""
        value = self._read(node)
        size = len(value) // ITEMS_PER_STEP if isinstance(value, str | list | dict) else 0
        self._count(1 + size, node.lineno)
        return value

    def _read(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str() as text) if (half := re.search("[\ud800-\udfff]", text)) is not None:
                return self._unknown(node, f"the incomplete character {half[0]!a}")
            case ast.Constant(value=str() | float() | None as constant):
                return constant
            case ast.Constant(value=int() as number) if number < 2**63:
                return number
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Name(id=name):
                return self.names.get(name, NameReference(name, node.lineno, self._source))
            case ast.Attribute(value=inner, attr=name):
                if isinstance(owner := self._value(inner), NameReference):
                    return NameReference(f"{owner.text}.{name}", node.lineno, self._source)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                one, other = self._value(left), self._value(right)
                if type(one) is type(other) and isinstance(one, str | list):
                    return type(one)(one + other)
            case ast.List(elts=items):
                return self._items(items)
            case ast.Tuple(elts=items):
                return TupleValue(self._items(items))
            case ast.Dict(keys=keys, values=values):
                return self._mapping([... if key is None else self._value(key) for key in keys], values, node)
            case ast.Call():
                return self._call(node)
            case _ if any(isinstance(one, EFFECTS) for one in ast.walk(node)):
                raise self._refusal(node, f"{WORDS.get(type(node), 'an expression')} with a call or an assignment")
        return self._unknown(node, WORDS.get(type(node), "an expression that is not a plain value"))

    def _unknown(self, node: ast.expr, text: str) -> Unsupported:
        return Unsupported(text, node.lineno, self._source)

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            value = self._value(node.value if isinstance(node, ast.Starred) else node)
            if not isinstance(node, ast.Starred):
                value = [value]
            elif not isinstance(value, list):
                value = [self._unknown(node, "`*` before a value that is not a list")]
            items += value
        return items

    def _mapping(self, keys: list[Any], values: list[ast.expr], node: ast.expr) -> Any:
        """Return a mapping of keys to values. The key of ``**other`` is ``...``, and its entries are merged."""
        found: dict[Any, Any] = {}
        for key, value in zip(keys, list(map(self._value, values)), strict=True):
            entries = {key: value} if isinstance(key, str | int) else value if key is ... else None
            kinds = str if isinstance(node, ast.Call) else str | int
            if not isinstance(entries, dict) or not all(isinstance(one, kinds) for one in entries):
                return self._unknown(node, "a mapping with keys that are not plain values")
            found |= entries
        return found

    def _call(self, node: ast.Call) -> Any:
        function = node.func
        method = function.attr if isinstance(function, ast.Attribute) else ""
        owner = self._value(function.value if isinstance(function, ast.Attribute) else function)
        args = self._items(node.args)
        words = self._mapping([one.arg or ... for one in node.keywords], [one.value for one in node.keywords], node)
        if isinstance(owner, str) and method in ("format", "strip"):
            return self._text(owner, method, args, words, node)
        if not isinstance(owner, NameReference | CallExpression) or owner.text in CODE:
            raise self._refusal(node, f"the call {ast.unparse(function)[:60]}()")
        if owner.text == "dict" and not method:
            if isinstance(words, dict) and all(isinstance(one, dict) for one in args) and len(args) < 2:
                return dict(*args, **words)
            return self._unknown(node, "a mapping with keys that are not plain values")
        words = words if isinstance(words, dict) else {"**": words}
        text = f"{owner.text}.{method}" if method else owner.text
        owner = owner if isinstance(owner, CallExpression) else None
        call = CallExpression(text, node.lineno, self._source, tuple(args), words, owner)
        if any(isinstance(one, LocalFunction) for one in (*args, *words.values())) and not call.is_inert:
            raise self._refusal(node, f"the call {text[:60]}() with a function of the file")
        if owner is not None:
            self._check_arguments(call, node)
        if owner is not None and isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
            self.methods.append(call)
        elif owner is not None and owner.owner is None and method:
            self._progress.notes.append(f"line {call.line}: the effect of .{method}() on {owner} was not imported")
        return call

    def _text(self, text: str, method: str, args: list[Any], words: Any, node: ast.expr) -> Any:
        """Return ``text.format(…)`` or ``text.strip()``."""
        given = [*args, *words.values()] if isinstance(words, dict) else [words]
        if method == "strip" and not given:
            return text.strip()
        is_plain = all(isinstance(one, str | int | float | None) for one in given) and method == "format"
        if (
            is_plain
            and FIELDS.fullmatch(text)
            and text.count("{") * max(map(len, map(str, given)), default=0) <= MAX_STEPS
        ):
            with suppress(ValueError, LookupError):  # the file's own Python would fail too
                return text.format(*args, **words)
        return self._unknown(node, f"this .{method}()")
