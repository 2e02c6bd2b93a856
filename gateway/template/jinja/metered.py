"""How is a template rendered in this process without holding anybody up? In an environment that pays for each step.

The text is the one of ``Environment``, or there is none: what the purse does not reach for, or has no price, raises
``Beyond``, and the same render is done in the worker. Prices stand in the tables of methods and filters.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sized
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.environment import Template
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.utils import Namespace, _PassArg

from gateway.template.jinja.environment import Clock, DictMaker, Environment, GenerationBlocks, SafeNamespace
from gateway.template.jinja.meter import BIG_INT, Beyond, Meter
from gateway.template.jinja.proof import LAZY, Metering, weight_of

MOST_INDENT = 16
MOST_DIGITS = 32
"""Of a number that is rounded: 10 to the power of a million has a million digits."""
OF_DICT = frozenset(dir(dict))
"""Names that mean a mapping's own methods, whatever its keys."""
NUMBERS = frozenset({int, float, bool})
MOST_ARGUMENT = 64
"""Characters of an argument whose use has a price: those of a filter, and what ``strip`` takes off."""
PLAIN_FORMAT = re.compile(r"[^%]*(%[A-Za-z%][^%]*){0,32}")
"""Formats of a date without widths, which may be of any size."""


class MeteredContext(Context):
    """The variables of one render, and its purse."""

    meter: Meter


class MeteredNamespace(SafeNamespace):
    """A namespace holds values, and no namespaces: one that holds itself could be printed without end."""

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, Namespace):
            raise Beyond
        super().__setitem__(name, value)


class MeteredEnvironment(Environment):
    """``Environment`` that pays. Compiles what ``proof`` found no fault with, and nothing else."""

    context_class = MeteredContext

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.globals["namespace"] = MeteredNamespace
        for name in FILTERS:
            self.filters[name] = _paid_filter(name, self.filters[name])
        self.filters.update(INTERNAL)
        self.finalize = None  # what is printed goes through ``_printed`` instead, and takes a context as well

    def compiled(self, tree: nodes.Template) -> tuple[Template, int]:
        """The template of a tree, with the meter in it, and the steps of what stands outside its loops."""
        weight = weight_of(tree.body)
        metered: nodes.Template = Metering().visit(tree)
        source = self._generate(metered, None, "<chat template>")
        code = self._compile(source, "<chat template>")
        return Template.from_code(self, code, dict(self.globals)), weight

    def getattr(self, obj: Any, attribute: str) -> Any:
        """The plain one, in a shorter way for what is looked up most often, and known to be safe."""
        kind = type(obj)
        if kind is dict:
            if attribute not in OF_DICT:
                return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        elif kind is str:
            if attribute in OF_TEXT:
                return getattr(obj, attribute)
        elif (kind is MeteredNamespace or kind is LoopContext) and attribute[0] != "_" and hasattr(obj, attribute):
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A call pays by what is called; what has no price is not called here."""
        meter: Meter = __context.meter  # type: ignore[attr-defined]
        kind = type(__obj)
        if kind is BuiltinMethodType:
            kwargs.pop("_loop_vars", None)  # jinja2 adds these for functions that take a context
            kwargs.pop("_block_vars", None)
            price = METHODS.get((type(__obj.__self__), __obj.__name__))
            if price is None:
                raise Beyond
            return price(meter, __obj, args, kwargs)
        meter.step()
        if kind is Macro:
            text = super().call(__context, __obj, *args, **kwargs)
            meter.made(len(text))
            return text
        if kind is MethodType:
            if not isinstance(__obj.__self__, (LoopContext, GenerationBlocks)):
                raise Beyond
            if args:  # ``loop.changed`` compares them
                meter.read(meter.weigh(list(args)))
        elif kind is DictMaker or __obj is MeteredNamespace:
            if any(type(one) is not dict for one in args):
                raise Beyond  # a key may be a tuple then
            given = [value for name, value in kwargs.items() if name not in ("_loop_vars", "_block_vars")]
            meter.made(meter.weigh([*args, *given]))
        elif kind is str or isinstance(__obj, Undefined):
            pass  # an error in any case
        elif __obj is __self.globals["strftime_now"]:
            meter.step(8)
            if not args or type(args[0]) is not str or not PLAIN_FORMAT.fullmatch(args[0]):
                raise Beyond
        elif __obj is not __self.globals["raise_exception"] and __obj is not __self.globals["range"]:
            raise Beyond
        return super().call(__context, __obj, *args, **kwargs)


@pass_context
def _printed(context: MeteredContext, value: Any) -> Any:
    """What a template prints: paid for, and told if it is nothing that anybody gave a value."""
    meter = context.meter
    if type(value) is str:
        meter.made(len(value))
    elif isinstance(value, Undefined):
        meter.undefined[str(value._undefined_name)] = None
    else:
        meter.made(meter.weigh(value))
    return value


# ---------------------------------------------------------------- methods


Method = Callable[[Meter, Any, tuple[Any, ...], Mapping[str, Any]], Any]


def _free(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    meter.step()
    return method(*args, **kwargs)


def _reads(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    meter.read(len(method.__self__))
    for one in args:
        if type(one) is tuple:
            meter.read(meter.weigh(one))
    return method(*args, **kwargs)


def _strips(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    meter.read(len(method.__self__))
    text = method(*_few(args), **kwargs)
    _pay_stripping(meter, method.__self__, text, args)
    return text


def _searches(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    meter.search(len(method.__self__))
    return method(*args, **kwargs)


def _searches_back(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    # From the right Python compares at each place anew, and knows no quicker way.
    if kwargs:
        raise Beyond
    text = method.__self__
    meter.search(len(text))
    if args and type(args[0]) is str:
        meter.search(min(len(args[0]), len(text)) * len(text) >> 4)
    return method(*args)


def _changes(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    meter.read(len(method.__self__))
    text = method(*args, **kwargs)
    meter.made(len(text))
    return text


def _replaces(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if len(args) >= 2 and type(args[0]) is str and type(args[1]) is str:
        _pay_replacing(meter, method.__self__, args[0], args[1])
    return method(*args, **kwargs)


def _joins(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if not args:
        return method(*args, **kwargs)
    values = meter.listed(args[0])
    if isinstance(values, Sized):
        meter.made(meter.weigh(values) + len(method.__self__) * len(values))
    return method(values, *args[1:], **kwargs)


def _few(args: tuple[Any, ...]) -> tuple[Any, ...]:
    if args and type(args[0]) is str and len(args[0]) > MOST_ARGUMENT:
        raise Beyond
    return args


def _pay_stripping(meter: Meter, text: str, stripped: str, args: tuple[Any, ...]) -> None:
    if args and type(args[0]) is str:
        meter.read((len(text) - len(stripped)) * (2 + len(args[0])))


def _pay_replacing(meter: Meter, text: str, old: str, new: str) -> None:
    meter.search(len(text))
    meter.made(len(text) + text.count(old) * len(new))


READING = (
    "startswith", "endswith", "removeprefix", "removesuffix", "isdigit", "isalpha",
    "isalnum", "isnumeric", "isdecimal", "isspace", "isupper", "islower", "istitle",
)  # fmt: skip
SEARCHING = (
    "split", "splitlines", "partition", "find", "index", "count",
)  # fmt: skip
SEARCHING_BACK = ("rsplit", "rpartition", "rfind", "rindex")
STRIPPING = ("strip", "lstrip", "rstrip")
CHANGING = ("lower", "upper", "title", "capitalize", "casefold", "swapcase")

OF_TEXT = frozenset([*READING, *STRIPPING, *SEARCHING, *SEARCHING_BACK, *CHANGING, "replace", "join"])

METHODS: Mapping[tuple[type, str], Method] = {
    **{(dict, name): _free for name in ("items", "keys", "values", "get")},
    **{(str, name): _reads for name in READING},
    **{(str, name): _strips for name in STRIPPING},
    **{(str, name): _searches for name in SEARCHING},
    **{(str, name): _searches_back for name in SEARCHING_BACK},
    **{(str, name): _changes for name in CHANGING},
    (str, "replace"): _replaces,
    (str, "join"): _joins,
}
"""What may be called on a value, and what is paid for it; ``center``, ``format`` and the like may be of any size."""


# ---------------------------------------------------------------- filters


def _small(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Arguments that say how, and are worth no price of their own."""
    for one in (*args, *kwargs.values()):
        kind = type(one)
        if not (kind in NUMBERS or one is None or (kind is str and len(one) <= MOST_ARGUMENT)):
            raise Beyond


def _weighs(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    _small(args, kwargs)
    meter.made(meter.weigh(value))


def _labours(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    # Each character becomes a value of its own, or goes through Python: a hundred times what copying it takes.
    _small(args, kwargs)
    meter.made(meter.weigh(value))
    if type(value) is str:
        meter.search(2 * len(value))
    elif isinstance(value, Sized):
        meter.step(4 * len(value))


def _escapes(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    meter.made(5 * meter.weigh(value))  # one character may become five


def _sums(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    if type(args[1] if len(args) > 1 else kwargs.get("start", 0)) not in NUMBERS:
        raise Beyond  # lists are copied for each that is added
    _weighs(meter, value, args, kwargs)


def _for_trim(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    meter.made(meter.weigh(value))
    chars = args[0] if args else kwargs.get("chars")
    if chars is not None:
        if type(value) is not str or type(chars) is not str:
            raise Beyond
        _few((chars,))
        _pay_stripping(meter, value, value.strip(chars), (chars,))


def _for_each(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Steps for each value that a lazy filter goes over: a path in it, and what it is compared with."""
    steps = 1
    for one in (*args, *kwargs.values()):
        kind = type(one)
        if kind is str:
            steps += one.count(".") + (len(one) >> 5)
        elif kind not in NUMBERS and one is not None:
            raise Beyond
    return steps


def _glances(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    if type(value) is str:
        meter.read(len(value))
    else:
        meter.step()


def _for_join(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    between = args[0] if args else kwargs.get("d", "")
    _small(args[1:], {name: one for name, one in kwargs.items() if name != "d"})
    meter.made(meter.weigh(value) + (meter.weigh(between) * len(value) if isinstance(value, Sized) else 0))


def _for_replace(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    if kwargs or type(value) is not str or len(args) < 2 or type(args[0]) is not str or type(args[1]) is not str:
        raise Beyond
    _pay_replacing(meter, value, args[0], args[1])


def _for_json(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    given = dict(zip(("ensure_ascii", "indent", "separators", "sort_keys"), args, strict=False)) | dict(kwargs)
    indent = given.get("indent") or 0
    if type(indent) is not int or indent > MOST_INDENT or meter.weigh(given.get("separators") or "") > 64:
        raise Beyond
    # Indented JSON writes each level's blanks on every line; the nesting itself is bounded by the wire (64 levels).
    meter.made(meter.weigh(value) * (1 + (indent and 8)) * (4 if given.get("ensure_ascii") else 1))


def _for_indent(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    width = args[0] if args else kwargs.get("width", 4)
    if type(value) is not str or type(width) is not int or not 0 <= width <= MOST_INDENT:
        raise Beyond
    meter.made(len(value) + (value.count("\n") + 1) * width)


def _for_round(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    digits = args[0] if args else kwargs.get("precision", 0)
    if type(digits) is not int or abs(digits) > MOST_DIGITS:
        raise Beyond
    _glances(meter, value, args, kwargs)


Price = Callable[[Meter, Any, tuple[Any, ...], Mapping[str, Any]], None]

GLANCING = ("count", "length", "first", "last", "default", "d", "abs", "int", "float")
WEIGHING = (
    "lower",
    "upper",
    "capitalize",
    "string",
    "reverse",
    "dictsort",
    "items",
    "safe",
)
LABOURING = ("title", "list", "unique", "min", "max", "sort", "wordcount")

PRICES: Mapping[str, Price] = {
    **dict.fromkeys(GLANCING, _glances),
    **dict.fromkeys(WEIGHING, _weighs),
    **dict.fromkeys(LABOURING, _labours),
    "e": _escapes,
    "escape": _escapes,
    "sum": _sums,
    "trim": _for_trim,
    "join": _for_join,
    "replace": _for_replace,
    "tojson": _for_json,
    "indent": _for_indent,
    "round": _for_round,
}

FILTERS = frozenset(PRICES) | LAZY
"""The filters that have a price."""

DRAINING = frozenset({"join", "list", "max", "min", "reverse", "sort", "sum"})
"""Filters that take all that a generator gives as soon as they are applied, so that it can be counted before."""
UNTOUCHING = frozenset({"d", "default", "first", "float", "int"})
"""Filters that leave a generator as it is, or take one value."""


def _paid_filter(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    pay, takes = _paid_lazily if name in LAZY else _paid_at_once(name), _PassArg.from_obj(plain)

    @pass_context
    def paid(context: MeteredContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        meter = context.meter
        value = pay(meter, value, args, kwargs)
        if takes is None:
            result = plain(value, *args, **kwargs)
        elif takes is _PassArg.context:
            result = plain(context, value, *args, **kwargs)
        else:
            first: Any = context.eval_ctx if takes is _PassArg.eval_context else context.environment
            result = plain(first, value, *args, **kwargs)
        if type(result) is int and not -BIG_INT < result < BIG_INT:
            raise Beyond
        return result

    return paid


Payment = Callable[[Meter, Any, tuple[Any, ...], Mapping[str, Any]], Any]
"""Pays, and gives the value that the filter takes: as it was, or as it comes one by one."""


def _paid_at_once(name: str) -> Payment:
    price = PRICES[name]

    def pay(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if hasattr(value, "__next__"):
            if name in DRAINING:
                value = meter.listed(value)
            elif name not in UNTOUCHING:
                raise Beyond
        price(meter, value, args, kwargs)
        return value

    return pay


def _paid_lazily(meter: Meter, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    # Nothing is taken from a generator before the template asks for it: others may be reading it as well.
    steps = _for_each(args, kwargs)
    if isinstance(value, Sized):
        meter.step(1 + len(value) * steps)
        return value
    return _one_by_one(meter, value, steps) if hasattr(value, "__next__") else value


# ---------------------------------------------------------------- what ``proof.Metering`` puts into a tree


@pass_context
def _turns(context: MeteredContext, value: Any, weight: int) -> Any:
    meter = context.meter
    if isinstance(value, Sized):
        meter.step(1 + len(value) * weight)
        return value
    return _one_by_one(meter, value, weight) if hasattr(value, "__next__") else value


def _one_by_one(meter: Meter, values: Iterator[Any], weight: int) -> Iterator[Any]:
    for value in values:
        meter.step(weight)
        yield value


@pass_context
def _pays(context: MeteredContext, value: Any, weight: int) -> Any:
    context.meter.step(weight)
    return value


@pass_context
def _made(context: MeteredContext, value: Any) -> Any:
    meter = context.meter
    kind = type(value)
    if kind is str:
        meter.made(len(value))
    elif kind is not int or not -BIG_INT < value < BIG_INT:
        meter.made(meter.weigh(value))
    return value


@pass_context
def _times(context: MeteredContext, left: Any, right: Any) -> Any:
    return _of_numbers(operator.mul, left, right)


@pass_context
def _modulo(context: MeteredContext, left: Any, right: Any) -> Any:
    return _of_numbers(operator.mod, left, right)


@pass_context
def _minus(context: MeteredContext, left: Any, right: Any) -> Any:
    return _of_numbers(operator.sub, left, right)


@pass_context
def _floor(context: MeteredContext, left: Any, right: Any) -> Any:
    return _of_numbers(operator.floordiv, left, right)


@pass_context
def _number(context: MeteredContext, value: Any) -> Any:
    if type(value) not in NUMBERS:
        raise Beyond
    return value


def _of_numbers(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if type(left) not in NUMBERS or type(right) not in NUMBERS:
        raise Beyond
    result = operation(left, right)
    if type(result) is int and not -BIG_INT < result < BIG_INT:
        raise Beyond
    return result


@pass_context
def _searched(context: MeteredContext, value: Any, short: bool) -> Any:
    """``short``: what is looked for compares in no time."""
    meter = context.meter
    kind = type(value)
    if kind is str:
        meter.search(len(value))
    elif kind is dict or isinstance(value, Undefined):
        pass
    elif hasattr(value, "__next__"):
        return _one_by_one(meter, value, 1) if short else _weighed_one_by_one(meter, value)
    elif short and isinstance(value, Sized):
        meter.step(1 + len(value))
    else:
        meter.read(meter.weigh(value))
    return value


def _weighed_one_by_one(meter: Meter, values: Iterator[Any]) -> Iterator[Any]:
    for value in values:
        meter.read(meter.weigh(value))
        yield value


@pass_context
def _compared(context: MeteredContext, value: Any) -> Any:
    meter = context.meter
    kind = type(value)
    if kind is str:
        meter.step(1 + (len(value) >> 14))
    elif kind not in NUMBERS and value is not None and not isinstance(value, Undefined):
        meter.read(meter.weigh(value))
    return value


@pass_context
def _sliced(context: MeteredContext, value: Any, straight: bool) -> Any:
    """``straight``: without a step, so that it is copied at one go."""
    meter = context.meter
    if type(value) is str:
        meter.read(len(value) >> (3 if straight else 0))
    elif isinstance(value, Sized):
        meter.step(1 + (len(value) >> 5))
    return value


@pass_context
def _held(context: MeteredContext, value: Any) -> Any:
    meter = context.meter
    meter.made(meter.weigh(value))
    return value


PUT_IN = (
    _printed, _turns, _pays, _made, _times, _modulo, _minus, _floor, _number, _searched, _compared, _sliced, _held,
)  # fmt: skip

INTERNAL: Mapping[str, Callable[..., Any]] = {function.__name__: function for function in PUT_IN}
