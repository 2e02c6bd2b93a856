"""Which constructs of a template can be metered where they stand? A template with any other is *confined*.

Confined is not forbidden: it is rendered in a process of its own (``confined.py``). The real templates of today hold
loops over messages, conditions, ``set``, namespaces, macros, slices and string methods, all of which can be metered.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes

TESTS = frozenset({
    "boolean", "callable", "defined", "divisibleby", "eq", "equalto", "even", "false", "float", "ge", "greaterthan",
    "gt", "integer", "iterable", "le", "lessthan", "lower", "lt", "mapping", "ne", "none", "number", "odd", "sameas",
    "sequence", "string", "true", "undefined", "upper", "==", "!=", ">", ">=", "<", "<=", "escaped",
})  # fmt: skip
"""Tests that cost no more than a comparison, once their operands are paid for (``metering.py``)."""

OF_NUMBERS = frozenset({"divisibleby", "even", "odd"})
"""Tests that take a remainder; in a text it is a format of any width."""

OF_CASE = frozenset({"lower", "upper"})
"""Tests that write out what they look at."""

APPLIED = TESTS - OF_NUMBERS - OF_CASE
"""Tests that a filter may apply to many values: the price of any other depends on each."""

FEW = 32
"""Items of a tuple in a template; each use as a key goes over all of them."""
LARGE = 2**64

LAZY = frozenset({"map", "select", "reject", "selectattr", "rejectattr"})
"""Filters that apply another filter or test, which must be named in so many words."""

NAMED_AT = {"map": 0, "select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1}

FOREIGN: tuple[tuple[type[nodes.Node], str], ...] = (
    (nodes.Extends, "extends"),
    (nodes.Include, "include"),
    (nodes.Import, "import"),
    (nodes.FromImport, "from … import"),
)
"""What reads other templates; there are none."""

UNBOUNDED: tuple[tuple[type[nodes.Node], str], ...] = (
    (nodes.Block, "a block"),
    (nodes.FilterBlock, "a filter block"),
    (nodes.ScopedEvalContextModifier, "an autoescape block"),
    (nodes.EvalContextModifier, "an autoescape block"),
    (nodes.Pow, "**"),
)

UNWEIGHED = frozenset({"varargs", "kwargs"})
"""What a macro was called with beyond its parameters: lists that hold lists, made without being weighed."""


def foreign(tree: nodes.Template) -> Iterator[tuple[int, str]]:
    """(line, name) of what reads other templates."""
    for kind, name in FOREIGN:
        for node in tree.find_all(kind):
            yield node.lineno, name


def confined_by(tree: nodes.Template, filters: frozenset[str]) -> Iterator[tuple[int, str]]:
    """(line, construct) of everything that cannot be metered; ``filters``: those that can."""
    for kind, name in UNBOUNDED:
        for node in tree.find_all(kind):
            yield node.lineno, name
    for variable in tree.find_all(nodes.Name):
        if variable.name in UNWEIGHED:
            yield variable.lineno, f"the name {variable.name}"
    for const in tree.find_all(nodes.Const):
        if isinstance(const.value, int) and const.value >= LARGE:
            yield const.lineno, "a number beyond 64 bits"
    for several in tree.find_all(nodes.Tuple):
        if several.ctx == "load" and not (is_constant(several) and len(several.items) <= FEW):
            # A tuple may be a key, and a tuple of tuples of tuples is gone over each time it is looked up.
            yield several.lineno, "a tuple that is long or computed"
    for pair in tree.find_all(nodes.Pair):
        if not (isinstance(pair.key, nodes.Const) and isinstance(pair.key.value, str)):
            yield pair.lineno, "a key that is computed"
    for loop in tree.find_all(nodes.For):
        if loop.recursive:
            yield loop.lineno, "a recursive loop"
    for test in tree.find_all(nodes.Test):
        if test.name not in TESTS:
            yield test.lineno, f"the test {test.name}"
    for filter_ in tree.find_all(nodes.Filter):
        if filter_.name not in filters or filter_.node is None:
            yield filter_.lineno, f"the filter {filter_.name}"
        elif filter_.name in LAZY and not _is_named(filter_, filters):
            yield filter_.lineno, f"what {filter_.name} applies"


def _is_named(node: nodes.Filter, filters: frozenset[str]) -> bool:
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        return False
    known = (filters - LAZY) if node.name == "map" else APPLIED
    for argument in node.args[NAMED_AT[node.name] :][:1]:
        if not isinstance(argument, nodes.Const) or argument.value not in known:
            return False
    return True


def is_constant(node: nodes.Node) -> bool:
    """Is it the same whenever it is evaluated?"""
    if isinstance(node, (nodes.Tuple, nodes.List)):
        return all(is_constant(item) for item in node.items)
    return isinstance(node, nodes.Const)
