"""What does everything else cost that a template does? The steps that ``metering.py`` puts into its tree."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Undefined

from gateway.template.huggingface.sandbox.context import MeteredContext
from gateway.template.huggingface.sandbox.filters import one_by_one
from gateway.template.huggingface.sandbox.meter import BIG_INT, NUMBERS, Beyond, Meter


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


@pass_context
def _turns(context: MeteredContext, value: Any, weight: int) -> Any:
    meter = context.meter
    if isinstance(value, Sized):
        meter.step(1 + len(value) * weight)
        return value
    return one_by_one(meter, value, weight) if hasattr(value, "__next__") else value


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
        return one_by_one(meter, value, 1) if short else _weighed_one_by_one(meter, value)
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
