"""Where in a template does the meter stand? Filters that pay, around what costs; and what a piece of it weighs.

Only for templates that ``proof.py`` has found to hold nothing that cannot be metered.
"""

from __future__ import annotations

from collections.abc import Mapping

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from gateway.template.huggingface.sandbox.proof import OF_CASE, OF_NUMBERS, is_constant

COMPARING = frozenset({
    "eq", "equalto", "==", "ne", "!=", "lt", "lessthan", "<", "le", "<=", "gt", "greaterthan", ">", "ge", ">=",
})  # fmt: skip
"""Tests that compare with what they are given."""

SHORT = 256
"""Characters of a constant that is compared without being paid for."""
AT_ONCE = 16
"""Texts that are put together before they are paid for."""


class Metering(NodeTransformer):
    """Puts the meter into a template's tree: filters that pay, around what costs.

    Their names begin with an underscore, and no template may use such a name (they are not in ``filters``).
    """

    def visit_For(self, node: nodes.For) -> nodes.Node:
        """A loop pays for all its turns when it begins."""
        weight = weight_of([*node.body, *([node.test] if node.test else [])])
        self.generic_visit(node)
        node.iter = _through("_turns", node.iter, nodes.Const(weight))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        """A macro pays each time it is called."""
        weight = weight_of(node.body)
        self.generic_visit(node)
        paid = _through("_pays", nodes.Const(""), nodes.Const(weight))
        node.body = [nodes.ExprStmt(paid, lineno=node.lineno), *node.body]
        return node

    visit_CallBlock = visit_Macro

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:
        """A captured text is a new value, however it came about."""
        self.generic_visit(node)
        innermost = node.filter
        if innermost is None:
            node.filter = nodes.Filter(None, "_made", [], [], None, None, lineno=node.lineno)
            return node
        while isinstance(innermost.node, nodes.Filter):
            innermost = innermost.node
        innermost.node = nodes.Filter(None, "_made", [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """``~`` makes a text."""
        self.generic_visit(node)
        if len(node.nodes) > AT_ONCE:
            node.nodes = [_through("_made", one) for one in node.nodes]
        return _through("_made", node)

    def visit_Add(self, node: nodes.Add) -> nodes.Node:
        """``+`` makes a text or a list; a whole sum is paid for once."""
        self._summands(node)
        return _through("_made", node)

    def _summands(self, node: nodes.Add) -> None:
        links = 0
        while isinstance(node.left, nodes.Add):
            node.right = self.visit(node.right)
            node, outer, links = node.left, node, links + 1
            if links % AT_ONCE == 0:
                outer.left = _through("_made", node)
        node.left, node.right = self.visit(node.left), self.visit(node.right)

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        """What is printed is paid for, unless it was when it was made."""
        self.generic_visit(node)
        node.nodes = [one if _is_paid(one) else _through("_printed", one) for one in node.nodes]
        return node

    def visit_Mul(self, node: nodes.Mul) -> nodes.Node:
        """``*`` is for numbers; anything else may be of any length."""
        self.generic_visit(node)
        return _through("_times", node.left, node.right)

    def visit_Mod(self, node: nodes.Mod) -> nodes.Node:
        """``%`` is for numbers; in a text it is a format of any width."""
        self.generic_visit(node)
        return _through("_modulo", node.left, node.right)

    def visit_Sub(self, node: nodes.Sub) -> nodes.Node:
        """``-`` is for numbers, and keeps them in bounds."""
        self.generic_visit(node)
        return _through("_minus", node.left, node.right)

    def visit_FloorDiv(self, node: nodes.FloorDiv) -> nodes.Node:
        """``//`` is for numbers."""
        self.generic_visit(node)
        return _through("_floor", node.left, node.right)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        """``in`` searches; ``==`` and its like go over both sides, so that it is enough to pay for one of them."""
        left = node.expr
        for operand in node.ops:
            right = operand.expr
            if operand.op in ("in", "notin"):
                if not _is_short(right) and not _is_short_list(right):
                    operand.expr = _through("_searched", self.visit(right), nodes.Const(_is_short(left)))
                else:
                    operand.expr = self.visit(right)
            elif _is_short(left) or _is_short(right):
                operand.expr = self.visit(right)
            else:
                operand.expr = _through("_compared", self.visit(right))
            left = right
        node.expr = self.visit(node.expr)
        return node

    def visit_Test(self, node: nodes.Test) -> nodes.Node:
        """A test pays for what it goes over."""
        given = node.args
        self.generic_visit(node)
        if node.name in OF_NUMBERS:
            node.node = _through("_number", node.node)
        elif node.name in OF_CASE:
            node.node = _through("_held", node.node)
        elif node.name in COMPARING and not all(_is_short(one) for one in given):
            node.node = _through("_compared", node.node)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        """A slice is a copy."""
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _through("_sliced", node.node, nodes.Const(node.arg.step is None))
        return node

    def visit_List(self, node: nodes.Expr) -> nodes.Node:
        """What is put into a list or mapping is written out with it, as often as it stands there."""
        self.generic_visit(node)
        if is_constant(node) or getattr(node, "ctx", "load") == "store":
            return node
        return _through("_held", node)

    visit_Tuple = visit_List
    visit_Dict = visit_List


def weight_of(body: list[nodes.Node]) -> int:
    """Steps that a piece of a template may take at one go: its nodes, and the text it prints."""
    weight = 1
    for node in body:
        for one in (node, *node.find_all(nodes.Node)):
            weight += COSTS.get(type(one), 1)
            if isinstance(one, nodes.TemplateData):
                weight += len(one.data) >> 5
            elif isinstance(one, nodes.Output):
                weight += 2 * len(one.nodes)
            elif isinstance(one, (nodes.List, nodes.Tuple, nodes.Dict)):
                weight += len(one.items)
    return weight


COSTS: Mapping[type[nodes.Node], int] = {
    **dict.fromkeys(
        (nodes.Name, nodes.Const, nodes.Operand, nodes.Keyword, nodes.Pair, nodes.Output, nodes.TemplateData), 0
    ),
    # What takes several of Python's calls: measured, as a render of nothing else.
    **dict.fromkeys((nodes.Call, nodes.CallBlock, nodes.Filter, nodes.Getattr, nodes.NSRef, nodes.AssignBlock), 4),
}
"""Steps of a node, one if it is not here."""


def _through(name: str, node: nodes.Node, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _is_paid(node: nodes.Expr) -> bool:
    if isinstance(node, nodes.Filter):
        return node.name == "_made"
    return isinstance(node, nodes.TemplateData) or (isinstance(node, nodes.Const) and isinstance(node.value, str))


def _is_short(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and not (isinstance(node.value, str) and len(node.value) > SHORT)


def _is_short_list(node: nodes.Node) -> bool:
    """Constants; what there are of them is in the weight of the loop around."""
    return isinstance(node, (nodes.Tuple, nodes.List)) and all(_is_short(item) for item in node.items)
