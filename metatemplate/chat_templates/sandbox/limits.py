"""The environment of chat templates in the gateway's process: the sandbox, with limits of time and of text.

Only templates whose operations are all known to be fast are rendered here (``has_known_operations``). A render counts
the characters that it builds and prints, and reads the clock in loops, calls and filters. Beyond a limit it raises
``LimitReached``, and the caller renders the conversation again, in a subprocess. The limits do not change the text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from time import monotonic, thread_time
from types import BuiltinMethodType, GeneratorType
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Context, Macro
from jinja2.visitor import NodeTransformer

from metatemplate.chat_templates.sandbox.environment import (
    ChatEnvironment,
    Clock,
    RenderContext,
    SafeNamespace,
    note_undefined,
    tojson,
)

MAX_SECONDS = 0.1
"""The processor time that one render may take after as many seconds have passed. So a busy machine limits no render."""
MAX_CHARACTERS = 2 * 1024 * 1024
"""The largest number of characters that one render builds and prints in the gateway's process."""
SHORT_LOOP = 20_000
"""In a loop, the clock is read for each item if the number of items times the number of nodes is larger than this."""
MANY_PARTS = 256
"""Fewer constant texts of a template are not counted when they are joined."""
MAX_OPERANDS = 32
"""The largest number of texts that one expression may join."""
MAX_BITS = 1024
"""The size of the largest product of two integers."""
MAX_INDENT = 8
"""The largest indentation of JSON."""
MAX_SEPARATORS = 64
"""The largest size of the separators of JSON."""
MAX_TIME_FORMAT = 256
"""The largest number of characters of a format of ``strftime_now``."""
MAX_COMPARISONS = 10_000_000
"""The largest product of the lengths of two texts in a method that may compare each character with each."""
VALUE_SIZE = 16
"""Each JSON value counts as this many characters, in addition to the characters of texts and keys."""

TEMPLATE_FUNCTIONS = frozenset({"caller", "dict", "namespace", "raise_exception", "range", "strftime_now"})
SPLITTING = frozenset({"partition", "rpartition", "rsplit", "split", "splitlines"})
COPYING = SPLITTING | frozenset(
    {
        "capitalize",
        "lower",
        "lstrip",
        "removeprefix",
        "removesuffix",
        "rstrip",
        "strip",
        "title",
        "upper",
    }
)
"""The methods whose results have at most as many characters as the text."""
QUADRATIC = frozenset({"lstrip", "rfind", "rpartition", "rsplit", "rstrip", "strip"})
"""The methods whose time may be proportional to the product of the lengths of two texts."""
TEMPLATE_METHODS = (
    COPYING
    | QUADRATIC
    | frozenset(
        {
            "append",
            "count",
            "cycle",
            "endswith",
            "find",
            "get",
            "index",
            "isalnum",
            "isalpha",
            "isdigit",
            "isspace",
            "items",
            "keys",
            "pop",
            "replace",
            "startswith",
            "update",
            "values",
        }
    )
)
LAZY_FILTERS = frozenset({"map", "reject", "rejectattr", "select", "selectattr"})
MAPPED_FILTERS = frozenset({"capitalize", "int", "length", "lower", "string", "title", "tojson", "trim", "upper"})
"""The filters that ``map`` may apply."""
TIMED_FILTERS = LAZY_FILTERS | frozenset(
    {
        "capitalize",
        "dictsort",
        "e",
        "escape",
        "first",
        "last",
        "lower",
        "max",
        "min",
        "safe",
        "sort",
        "title",
        "trim",
        "unique",
        "upper",
    }
)
FILTERS = (
    MAPPED_FILTERS
    | TIMED_FILTERS
    | frozenset(
        {
            "abs",
            "count",
            "d",
            "default",
            "float",
            "items",
            "join",
            "list",
            "replace",
        }
    )
)
"""The functions, methods and filters whose time is proportional to their input. Chat templates seldom use others."""


CONSTANTS = (nodes.Const, nodes.List, nodes.Tuple)


class LimitReached(Exception):
    """The render would take too much time or text for the gateway's process."""


def has_known_operations(tree: nodes.Template) -> bool:
    """Return whether a template uses only operations that ``LimitedEnvironment`` can limit."""
    functions = TEMPLATE_FUNCTIONS | {macro.name for macro in tree.find_all(nodes.Macro)}
    functions -= {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
    return (
        not any(tree.find_all((nodes.Pow, nodes.Block)))
        and not any(loop.recursive for loop in tree.find_all(nodes.For))
        and all(_operands(one) <= MAX_OPERANDS for one in tree.find_all((nodes.Add, nodes.Concat)))
        and all(_is_known_filter(one) for one in tree.find_all(nodes.Filter))
        and all(_has_constants(one) for one in tree.find_all(nodes.Test))
        and all(_is_known_call(call, functions) for call in tree.find_all(nodes.Call))
    )


def _is_known_filter(filter_: nodes.Filter) -> bool:
    if filter_.name == "trim" and (filter_.args or filter_.kwargs or filter_.dyn_args or filter_.dyn_kwargs):
        return False  # each character of a text is compared with each of the argument
    if filter_.name not in LAZY_FILTERS:
        return filter_.name in FILTERS
    if not _has_constants(filter_):
        return False  # for example, a test whether each item of a long list is in another long list
    if filter_.name != "map":
        return True
    names = [argument.as_const() for argument in filter_.args]
    return MAPPED_FILTERS.issuperset(names) and all(pair.key == "attribute" for pair in filter_.kwargs)


def _has_constants(node: nodes.Filter | nodes.Test) -> bool:
    """Return whether the unnamed arguments of a filter or test are constants."""
    inside = [one for argument in node.args for one in (argument, *argument.find_all(nodes.Node))]
    return not (node.dyn_args or node.dyn_kwargs) and all(isinstance(one, CONSTANTS) for one in inside)


def _is_known_call(call: nodes.Call, functions: frozenset[str]) -> bool:
    node = call.node
    if isinstance(node, nodes.Getattr) and node.attr == "format":
        return _is_simple_format(node.node)
    if isinstance(node, nodes.Name) and node.name == "strftime_now":
        formats = [one for one in call.args if isinstance(one, nodes.Const) and len(str(one.value)) <= MAX_TIME_FORMAT]
        if not len(formats) == len(call.args) == 1:
            return False
    return calls_known(call, TEMPLATE_METHODS, functions)


def calls_known(call: nodes.Call, methods: Collection[str], functions: Collection[str]) -> bool:
    """Return whether a call is of one of these methods or functions, or of an extension of the environment."""
    node = call.node
    if isinstance(node, nodes.Getattr):
        return node.attr in methods
    return isinstance(node, nodes.ExtensionAttribute) or (isinstance(node, nodes.Name) and node.name in functions)


def _is_simple_format(node: nodes.Expr) -> bool:
    """Return whether a format is a constant without widths, such as ``"{:1000000000}"``."""
    text = node.value if isinstance(node, nodes.Const) else None
    return isinstance(text, str) and ":" not in text and text.count("{") <= MAX_OPERANDS


def _operands(node: nodes.Node) -> int:
    """Return the number of texts that an expression joins."""
    if isinstance(node, nodes.Concat):
        return sum(map(_operands, node.nodes))
    return _operands(node.left) + _operands(node.right) if isinstance(node, nodes.Add) else 1


def size_of(value: Any, limit: int) -> int:
    """Return the size of a JSON value in characters. Counting stops when the size is above ``limit``."""
    size, waiting = 0, [value]
    while waiting and size <= limit:
        one = waiting.pop()
        size += VALUE_SIZE
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, (list, tuple)):
            waiting += one
        elif isinstance(one, (dict, Mapping)):
            size += sum(map(len, one))
            waiting += one.values()
    return size


# ---------------------------------------------------------------- the environment


class LimitedContext(RenderContext):
    """The variables of one render, and what is left of its limits."""

    room = MAX_CHARACTERS
    used = 0.0
    """The processor time of the thread when ``end`` was reached the first time."""

    def use(self, characters: int) -> None:
        """Count characters, and read the clock. Raises ``LimitReached`` if a limit is reached."""
        self.room -= characters
        if self.room < 0 or (monotonic() > self.end and self._is_late()):
            raise LimitReached

    def _is_late(self) -> bool:
        """Return whether the render has used processor time, and was not merely waiting for a processor."""
        used = thread_time()
        self.used = self.used or used
        return used > self.used + MAX_SECONDS


class LimitedNamespace(SafeNamespace):
    """``namespace()`` that is not printed here, because it may contain another namespace many times."""

    def __repr__(self) -> str:
        raise LimitReached


class LimitedEnvironment(ChatEnvironment):
    """The environment of chat templates that are rendered in the gateway's process."""

    context_class: type[Context] = LimitedContext
    intercepted_binops = frozenset({"*", "%"})

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """Return the whole text of a render, a macro or a block."""
        parts = list(parts)
        if len(parts) > MANY_PARTS and sum(map(len, parts)) > MAX_CHARACTERS:
            raise LimitReached
        return "".join(parts)

    def __init__(self, clock: Clock) -> None:
        """Create the environment. See ``ChatEnvironment``."""
        super().__init__(clock)
        self.finalize = _printed
        self.filters |= {"join": _join, "replace": _replace, "string": _string, "tojson": _tojson}
        self.filters |= {"_compared": _compared, "_formatted": _formatted, "_looped": _looped}
        self.filters |= {"_sized": _sized, "_timed": _timed}
        """The checks that ``_Checks`` adds."""
        self.globals["namespace"] = LimitedNamespace

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method, a macro or a function of the template. Raises ``LimitReached`` beyond a limit."""
        kind = type(__obj)
        if kind is not BuiltinMethodType and kind is not Macro:
            result = super().call(__context, __obj, *args, **kwargs)
            __context.use(len(result) if type(result) in (range, str) else 0)
            return _sized(__context, result) if type(result) is dict else result
        if kwargs:
            kwargs.pop("_loop_vars", None)  # jinja2 adds them for functions that take the context
            kwargs.pop("_block_vars", None)
        __context.use(0 if kind is Macro else _size_of_result(__obj, (*args, *kwargs.values())))
        return __obj(*args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Return the result of ``*`` or ``%``. Raises ``LimitReached`` beforehand."""
        if operator == "%":
            if isinstance(left, str):  # the text may contain a width, such as "%1000000000d"
                raise LimitReached
            return left % right
        if isinstance(left, int) and isinstance(right, int):
            if left.bit_length() + right.bit_length() > MAX_BITS:
                raise LimitReached
        else:
            number, value = (left, right) if isinstance(left, int) else (right, left)
            if isinstance(number, int):
                context.use(max(number, 0) * size_of(value, MAX_CHARACTERS))
        return left * right

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        return super()._generate(_Checks().visit(source), *args, **kwargs)


class _Checks(NodeTransformer):
    """Adds checks to loops, filters, and expressions that make a text or a list from others.

    A value that is stored or passed on is checked when it is made, so that it cannot double again and again. A sum that
    is printed is checked by ``_printed``.
    """

    def visit_For(self, node: nodes.For) -> nodes.Node:
        size = sum(1 for part in (*node.body, node.test) if part for _ in part.find_all(nodes.Node))
        self.generic_visit(node)
        node.iter = _checked("_looped", node.iter, nodes.Const(size + 1, lineno=node.lineno))
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Filter:
        self.generic_visit(node)
        if node.name == "list":
            return _checked("_sized", node)
        return _checked("_timed", node) if node.name in TIMED_FILTERS else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _checked("_timed", node) if isinstance(node.arg, nodes.Slice) else node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        """Read the clock, except before comparing with a value that is written out in the template."""
        left = node.expr
        for operand in node.ops:
            written = (operand.expr,) if operand.op in ("in", "notin") else (left, operand.expr)
            left = operand.expr
            if not any(isinstance(one, nodes.Literal) for one in written):
                operand.expr = _checked("_compared", operand.expr)
        self.generic_visit(node)
        return node

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:
        self.generic_visit(node)
        return _checked("_formatted", node) if node.attr == "format" else node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        node.nodes = [self._without_check(child) for child in node.nodes]
        return node

    def visit_Add(self, node: nodes.Add | nodes.Concat) -> nodes.Node:
        return _checked("_sized", self._without_check(node))

    visit_Concat = visit_Add

    def _without_check(self, node: nodes.Expr) -> nodes.Expr:
        """Add checks inside an expression, but none to the sum itself if it is a sum."""
        if isinstance(node, nodes.Concat):
            node.nodes = [self._without_check(child) for child in node.nodes]
        elif isinstance(node, nodes.Add):
            node.left, node.right = self._without_check(node.left), self._without_check(node.right)
        else:
            visited: nodes.Expr = self.visit(node)
            return visited
        return node

    def visit_List(self, node: nodes.List | nodes.Tuple | nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        is_stored_to = isinstance(node, nodes.Tuple) and node.ctx != "load"
        return node if is_stored_to or not any(node.find_all((nodes.Name, nodes.Filter))) else _checked("_sized", node)

    visit_Tuple = visit_Dict = visit_List


def _checked(name: str, node: Any, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(arguments), [], None, None, lineno=node.lineno)


# ---------------------------------------------------------------- checks


@pass_context
def _looped(context: LimitedContext, items: Any, size_of_body: int) -> Any:
    """Return the items of a loop. The items of a long loop read the clock."""
    if monotonic() > context.end:
        context.use(0)
    try:
        is_short = len(items) * size_of_body <= SHORT_LOOP
    except TypeError:  # a generator
        is_short = False
    return items if is_short else _each(context, items)


def _each(context: LimitedContext, items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        context.use(0)
        yield item


@pass_context
def _timed(context: LimitedContext, value: Any) -> Any:
    """Count and return the result of a filter or a slice. The items of a lazy filter read the clock."""
    context.use(len(value) if isinstance(value, (str, list, tuple)) else 0)
    return _each(context, value) if type(value) is GeneratorType else value


@pass_context
def _compared(context: LimitedContext, value: Any) -> Any:
    """Return a value that is compared. The time of a comparison may be proportional to the size of the value."""
    context.use(0)
    return value


@pass_context
def _sized(context: LimitedContext, value: Any) -> Any:
    """Count and return a new text or list."""
    if type(value) is not int:  # a counter
        context.use(len(value) if type(value) is str else size_of(value, MAX_CHARACTERS))
    return value


@pass_context
def _formatted(context: LimitedContext, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method ``format`` whose result is counted."""
    return lambda *args, **kwargs: _sized(context, method(*args, **kwargs))


@pass_context
def _printed(context: LimitedContext, value: Any) -> str:
    """Count and return a printed value as a text. See ``note_undefined``."""
    text = value if isinstance(value, str) else str(note_undefined(context, value))
    context.room -= len(text)
    if context.room < 0:
        raise LimitReached
    return text


# ---------------------------------------------------------------- functions and filters


@pass_context
def _join(context: LimitedContext, value: Iterable[Any], d: Any = "", attribute: Any = None) -> Any:
    items = list(value)
    context.use(len(items) * size_of(d, MAX_CHARACTERS))
    return _sized(context, JINJA_FILTERS["join"](context.eval_ctx, items, d, attribute))


@pass_context
def _replace(context: LimitedContext, s: Any, old: Any, new: Any, count: int | None = None) -> Any:
    context.use(_replaced_size(str(s), str(old), str(new)))
    return JINJA_FILTERS["replace"](context.eval_ctx, s, old, new, count)


def _size_of_result(method: Any, arguments: tuple[Any, ...]) -> int:
    """Return a bound for the size of the result of a method; 0 if the method makes no new text."""
    text, name = method.__self__, method.__name__
    if not isinstance(text, str):
        return 0
    if name == "replace":
        return _replaced_size(text, *arguments)
    if name in QUADRATIC and any(isinstance(one, str) and len(text) * len(one) > MAX_COMPARISONS for one in arguments):
        raise LimitReached
    return len(text) if name in COPYING else 0


def _replaced_size(text: str, old: Any = "", new: Any = "", *_: Any) -> int:
    are_texts = isinstance(old, str) and isinstance(new, str)
    return len(text) + text.count(old) * len(new) if are_texts else 0  # not texts: an error follows


@pass_context
def _string(context: LimitedContext, value: Any) -> Any:
    return _sized(context, JINJA_FILTERS["string"](value))


@pass_context
def _tojson(context: LimitedContext, x: Any, *args: Any, **kwargs: Any) -> str:
    indent = kwargs.get("indent", args[1] if len(args) > 1 else None)
    if indent is not None:
        if not isinstance(indent, int) or indent > MAX_INDENT:
            raise LimitReached
        context.use(size_of(x, MAX_CHARACTERS) * max(indent, 1))
    if size_of(kwargs.get("separators", args[2] if len(args) > 2 else None), MAX_SEPARATORS) > MAX_SEPARATORS:
        raise LimitReached
    text = tojson(x, *args, **kwargs)
    context.use(len(text))
    return text
