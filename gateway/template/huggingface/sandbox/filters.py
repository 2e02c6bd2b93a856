"""What does a filter cost, and when? A price before it is applied; lazy ones pay as they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

from jinja2 import pass_context
from jinja2.utils import _PassArg

from gateway.template.huggingface.sandbox.context import MeteredContext
from gateway.template.huggingface.sandbox.meter import BIG_INT, NUMBERS, Beyond, Meter
from gateway.template.huggingface.sandbox.methods import MOST_ARGUMENT, few, pay_replacing, pay_stripping
from gateway.template.huggingface.sandbox.proof import LAZY

MOST_INDENT = 16

MOST_DIGITS = 32
"""Of a number that is rounded: 10 to the power of a million has a million digits."""


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
        few((chars,))
        pay_stripping(meter, value, value.strip(chars), (chars,))


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
    pay_replacing(meter, value, args[0], args[1])


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


def paid_filter(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
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
    return one_by_one(meter, value, steps) if hasattr(value, "__next__") else value


def one_by_one(meter: Meter, values: Iterator[Any], weight: int) -> Iterator[Any]:
    for value in values:
        meter.step(weight)
        yield value
