"""What may a statement change besides the names that it binds? By methods, functions of the file, entries that are set.

A plain value that may have been changed is marked, and refused where it is used; a call that stays a call, such as a
prompter, is told in a note, because its methods mostly change nothing.
"""

from __future__ import annotations

import ast
from typing import Any

from gateway.importer.python_source.values import Called, Module, Unread

MOST_STEPS = 60
"""Of a path such as ``a.b["c"]``; a longer one is not followed to its root."""

CHANGING = frozenset({
    "append", "extend", "insert", "remove", "pop", "popitem", "clear", "sort", "reverse", "update", "setdefault", "add",
    "discard", "difference_update", "intersection_update", "symmetric_difference_update", "__setitem__", "__delitem__",
    "__iadd__", "__ior__", "__init__", "__setattr__", "__delattr__", "__setstate__",
})  # fmt: skip
"""The methods of lists, mappings and sets that change them."""


class Changes:
    """Marks and notes for the values of one file."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def mark(self, value: Any, why: Unread) -> None:
        """This very value may have changed."""
        if isinstance(value, list | dict | set | Called):
            self._module.spoilt[id(value)] = (value, why)

    def by_calls(self, statement: ast.stmt, followed: ast.Call | None) -> None:
        """What the calls anywhere in a statement may change; ``followed``: the one whose effect is known."""
        vague: Unread | None = None
        for node in ast.walk(statement):
            if isinstance(node, ast.NamedExpr):
                self._module.names[node.target.id] = Unread("what := makes of it", node.lineno)
            if not isinstance(node, ast.Call) or node is followed:
                continue
            if isinstance(node.func, ast.Attribute):
                vague = vague or self._by_method(node.func)
            elif isinstance(node.func, ast.Name) and isinstance(self._module.names.get(node.func.id), Unread):
                self._by_function(node, node.func.id)
        if vague is not None:  # the loop of a comprehension, say: any of what is spoken of may be meant
            for node in ast.walk(statement):
                if isinstance(node, ast.Name):
                    self.mark(self._module.names.get(node.id), vague)

    def by_store(self, target: ast.Attribute | ast.Subscript, why: Unread) -> None:
        """An entry or attribute is set or deleted in a way that is not followed."""
        root, value, _ = self._reach(target.value)
        self.mark(value, why)
        if isinstance(value, Unread):
            self._module.note(f"line {target.lineno}: what is changed through {root} was not followed")

    def _by_method(self, func: ast.Attribute) -> Unread | None:
        """Marks or notes; gives the reason to doubt all that the statement names, if the owner is not known."""
        root, value, whole = self._reach(func.value)
        changes = func.attr in CHANGING
        why = Unread(f"what .{func.attr}() makes of it", func.lineno)
        match value:
            case list() | dict() | set() if changes:
                self.mark(value, why)
            case Called() if changes and not whole:
                self.mark(value, why)
            case Called():
                self._module.note(f"line {func.lineno}: what .{func.attr}() does to {value} was not followed")
            case Unread() if changes:
                self._module.note(f"line {func.lineno}: what .{func.attr}() does to {root} was not followed")
            case None if changes and root not in self._module.names:
                return why
        return None

    def _by_function(self, call: ast.Call, name: str) -> None:
        """A function of the file may change the lists and mappings that it is given."""
        for given in (*call.args, *[keyword.value for keyword in call.keywords]):
            _, value, _ = self._reach(given.value if isinstance(given, ast.Starred) else given)
            if isinstance(value, list | dict | set):
                self.mark(value, Unread(f"what {name}(…) makes of it", call.lineno))

    def _reach(self, node: ast.expr) -> tuple[str, Any, bool]:
        """The name at the root of a path, the last value on it that is known, and whether that is the path's end.

        The value is None if the path begins at no name, or at one that has no value.
        """
        steps: list[ast.expr] = []
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Call) and len(steps) < MOST_STEPS:
            steps.append(node)
            node = node.func if isinstance(node, ast.Call) else node.value
        if not isinstance(node, ast.Name):
            return "", None, False
        value = self._module.names.get(node.id)
        while steps:
            match value, steps[-1]:
                case dict(), ast.Subscript(slice=ast.Constant(value=str() | int() as key)) if key in value:
                    value = value[key]
                case list() | tuple(), ast.Subscript(slice=ast.Constant(value=int() as at)) if (
                    -len(value) <= at < len(value)
                ):
                    value = value[at]
                case _:
                    break
            steps.pop()
        return node.id, value, not steps
