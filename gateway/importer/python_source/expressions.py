"""What is the value of a Python expression? Literals, names, sums and entries are followed; nothing is called."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from gateway.importer.python_source.values import MOST_ITEMS, Called, Named, Unread
from gateway.importer.source import Source

MOST_NESTED = 60
"""Levels of one expression."""
MOST_TEXT = 256 * 1024
"""Characters that a text put together may have."""
ADDS = (str, list, tuple)


class Expressions:
    """Reads the expressions of one file by the names that its statements have bound so far."""

    def __init__(self, source: Source, names: Mapping[str, Any]) -> None:
        self._source = source
        self._names = names

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """The value of an expression that stands ``depth`` levels inside of another; raises ``ConfigError``."""
        if depth > MOST_NESTED:
            raise self._source.refuse(
                node.lineno, f"nests deeper than {MOST_NESTED} levels: copy what is needed out of it"
            )
        deeper = depth + 1
        match node:
            case ast.Constant(value=value):
                if isinstance(value, str):
                    return _whole(value, node.lineno)
                plain = isinstance(value, int | float | None)
                return value if plain else Unread(f"a value of type {type(value).__name__}", node.lineno)
            case ast.Name(id=name):
                return self._names.get(name, Named(name, node.lineno))
            case ast.Attribute():
                return self._dotted(node)
            case ast.JoinedStr(values=parts):
                if all(isinstance(part, ast.Constant) for part in parts):
                    text = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
                    return _whole(text, node.lineno)
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
                return total(self.value(left, deeper), self.value(right, deeper), node.lineno)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
                return _entry(self.value(inner, deeper), key, node.lineno)
        return Unread(_expression_name(node), node.lineno)

    def _dotted(self, node: ast.Attribute) -> Any:
        parts: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            return Unread("an attribute of an expression", node.lineno)
        root = self._names.get(inner.id)
        if root is not None and not isinstance(root, Named):
            return Unread(f"an attribute of {inner.id}", node.lineno)
        return Named(".".join([inner.id, *reversed(parts)]), node.lineno)

    def _items(self, nodes: list[ast.expr], depth: int) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if not isinstance(node, ast.Starred):
                items.append(self.value(node, depth))
                continue
            more = self.value(node.value, depth)
            items.extend(more if isinstance(more, list | tuple) else [Unread("a * of what is no list", node.lineno)])
            if len(items) > MOST_ITEMS:
                raise self._source.refuse(node.lineno, f"a list of more than {MOST_ITEMS} entries")
        return items

    def _dict(self, node: ast.Dict, depth: int) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            more = self.value(value, depth)
            if key is None:
                if not isinstance(more, dict):
                    return Unread("a ** of what is no mapping", node.lineno)
                found.update(more)
                continue
            name = self.value(key, depth)
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
            value = self.value(keyword.value, depth)
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


def total(one: Any, other: Any, line: int) -> Any:
    """``one + other``, for texts, lists and tuples."""
    if any(isinstance(one, kind) and isinstance(other, kind) for kind in ADDS):
        if len(one) + len(other) > (MOST_TEXT if isinstance(one, str) else MOST_ITEMS):
            return Unread("a sum that is too long", line)
        return one + other
    return Unread("a sum of what is not all text or all lists", line)


def _whole(text: str, line: int) -> str | Unread:
    """A text, unless it cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return Unread(f"{text[error.start]!a}, half of a character", line)
    return text


def _entry(value: Any, key: Any, line: int) -> Any:
    if isinstance(value, dict) and isinstance(key, str | int) and key in value:
        return value[key]
    if isinstance(value, list | tuple) and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    return Unread(f"an entry {key!r} that is not there", line)


_EXPRESSIONS: Mapping[type[ast.AST], str] = {
    ast.ListComp: "a comprehension", ast.DictComp: "a comprehension", ast.SetComp: "a comprehension",
    ast.GeneratorExp: "a comprehension", ast.Lambda: "a lambda", ast.IfExp: "an `if` inside an expression",
    ast.BinOp: "a calculation", ast.BoolOp: "a calculation", ast.Compare: "a comparison", ast.Set: "a set",
}  # fmt: skip


def _expression_name(node: ast.AST) -> str:
    return _EXPRESSIONS.get(type(node), "an expression")
