"""The operators, functions and methods that are evaluated. Each is pure, or changes only its list or mapping.

Operands are texts, numbers, ``None``, lists (a tuple is a ``TupleValue``) and mappings. The result has a limited size.
An operation that the file's own Python would refuse raises ``UnknownValue``, as does one beyond the limits.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import string
from collections.abc import Callable, Mapping
from itertools import chain, product
from typing import Any

from gateway.importer.python.values import TupleValue

MAX_LENGTH = 200_000
"""Maximum characters of a text, or entries of a list, that an expression in the file computes."""
MAX_INTEGER = 10**15
"""Maximum absolute value of an integer that an expression in the file computes."""
Scalar = str | int | float | None
Operation = Callable[..., Any]
FORMAT_SPEC = re.compile(r"(.?[<>=^])?[-+ ]?#?0?\d{0,2}[,_]?(\.\d{1,2})?[bcdeEfFgGnosxX%]?")
PERCENT = re.compile(r"%(?:\((\w+)\))?([-+ 0]?\d{0,2}(?:\.\d{1,2})?[sdifg]|%)")


class UnknownValue(Exception):
    """The value of an expression is not known."""


def unknown_if(condition: object) -> None:
    """Raise ``UnknownValue`` if the condition holds."""
    if condition:
        raise UnknownValue


def apply(operation: Operation, *args: Any, **keywords: Any) -> Any:
    """Return the result of an operation. Raises ``UnknownValue`` if the operation fails or its result is too large."""
    try:
        result = operation(*args, **keywords)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:  # the file's own Python would fail too
        raise UnknownValue from error
    unknown_if(any(isinstance(one, str | list | dict) and len(one) > MAX_LENGTH for one in (result, *args[:1])))
    unknown_if(isinstance(result, int) and abs(result) > MAX_INTEGER)
    return result


def scalar(value: Any) -> Any:
    """Return a text, number or ``None`` unchanged. Raises ``UnknownValue`` for any other value."""
    if not isinstance(value, Scalar):
        raise UnknownValue
    return value


def _scalars(items: Any) -> list[Any]:
    """Return the entries of a list, or the keys of a mapping, all of which are texts, numbers or ``None``."""
    return [scalar(item) for item in _listed(items)]


def _listed(items: Any) -> list[Any]:
    unknown_if(not isinstance(items, str | list | dict))
    return list(items)


# ---------------------------------------------------------------- operators


def _sum(one: Any, other: Any) -> Any:
    unknown_if(isinstance(one, str | list) and (type(one) is not type(other) or len(one) + len(other) > MAX_LENGTH))
    return _like(one, one + other)


def _like(one: Any, result: Any) -> Any:
    """Return a list that is computed from a tuple as a tuple."""
    return TupleValue(result) if isinstance(one, TupleValue) and isinstance(result, list) else result


def _product(one: Any, other: Any) -> Any:
    for text, times in ((one, other), (other, one)):
        unknown_if(isinstance(text, str | list) and (not isinstance(times, int) or len(text) * times > MAX_LENGTH))
    return _like(other if isinstance(other, list) else one, one * other)


def _power(one: Any, other: Any) -> Any:
    unknown_if(abs(one) > 1000 or abs(other) > 64)
    return one**other


def _percent(text: str, values: Any) -> str:
    """Return ``text % values``."""
    unknown_if(PERCENT.sub("", text).count("%"))
    fields = list(PERCENT.finditer(text))
    if isinstance(values, dict) and any(match[1] for match in fields):
        given: Any = {key: scalar(one) for key, one in values.items()}
        texts = [one for one in given.values() if isinstance(one, str)]
    else:
        given = tuple(_scalars(values if isinstance(values, TupleValue) else [values]))
        texts = [one for one in given if isinstance(one, str)]
    unknown_if(len(fields) * max(map(len, texts), default=0) > MAX_LENGTH)
    found: str = text % given
    return found


OPERATORS: Mapping[type[ast.operator | ast.unaryop], Operation] = {
    ast.Add: _sum,
    ast.Sub: operator.sub,
    ast.Mult: _product,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: lambda one, other: _percent(one, other) if isinstance(one, str) else one % other,
    ast.Pow: _power,
    ast.BitOr: lambda one, other: one | other if isinstance(one, dict) else scalar(one) | other,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
COMPARISONS: Mapping[type[ast.cmpop], Operation] = {
    ast.Eq: lambda one, other: scalar(one) == scalar(other),
    ast.NotEq: lambda one, other: scalar(one) != scalar(other),
    ast.Lt: lambda one, other: scalar(one) < scalar(other),
    ast.LtE: lambda one, other: scalar(one) <= scalar(other),
    ast.Gt: lambda one, other: scalar(one) > scalar(other),
    ast.GtE: lambda one, other: scalar(one) >= scalar(other),
    ast.In: lambda one, other: scalar(one) in (other if isinstance(other, str) else _scalars(other)),
    ast.NotIn: lambda one, other: scalar(one) not in (other if isinstance(other, str) else _scalars(other)),
    ast.Is: lambda one, other: _same(one, other),
    ast.IsNot: lambda one, other: not _same(one, other),
}


def _same(one: Any, other: Any) -> bool:
    """Return whether both values are the same of ``None``, ``True`` and ``False``. No other identity is known."""
    unknown_if(not any(value is known for value in (one, other) for known in (None, True, False)))
    return one is other


# ---------------------------------------------------------------- texts


def formatted(value: Any, conversion: int, spec: str) -> str:
    """Return the text of a replacement field. ``conversion``: as in ``ast.FormattedValue``."""
    unknown_if(FORMAT_SPEC.fullmatch(spec) is None or conversion not in (-1, ord("s"), ord("r")))
    scalar(value)
    return format(value if conversion == -1 else repr(value) if conversion == ord("r") else str(value), spec)


def _format(text: str, *args: Any, **keywords: Any) -> str:
    """Return ``text.format(…)``. Fields are only names and numbers, without attributes and entries."""
    pieces: list[str] = []
    length = 0
    fields = list(string.Formatter().parse(text))
    # A literal such as {{ is a row without a field, and would change the numbers of the fields after it.
    unknown_if(any(field[1] is None for field in fields) and any(field[1] == "" for field in fields))
    for number, (literal, name, spec, conversion) in enumerate(fields):
        pieces.append(literal)
        if name is not None:
            value = keywords[name] if name in keywords else args[int(name) if name else number]
            pieces.append(formatted(value, ord(conversion) if conversion else -1, spec or ""))
            length += len(pieces[-1])
        unknown_if(length > MAX_LENGTH)
    return "".join(pieces)


def _join(text: str, items: Any) -> str:
    items = _scalars(items)
    unknown_if(len(text) * len(items) + sum(map(len, items)) > MAX_LENGTH)
    return text.join(items)


def _replace(text: str, old: str, new: str, *count: int) -> str:
    unknown_if(len(text) + (text.count(old) if old else len(text) + 1) * len(new) > MAX_LENGTH)
    return text.replace(old, new, *count)


# ---------------------------------------------------------------- lists and mappings


def _dict(*args: Any, **keywords: Any) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for one in args:
        found |= one if isinstance(one, dict) else dict(_listed(one))
    found |= keywords
    unknown_if(not all(isinstance(key, str | int) for key in found))
    return found


def _range(*numbers: int) -> list[int]:
    found = range(*numbers)
    unknown_if(len(found) > MAX_LENGTH)
    return list(found)


def _total(items: Any, start: Any = 0) -> Any:
    if not isinstance(start, list):
        return sum(_scalars(items), start)
    unknown_if(not all(isinstance(one, list) for one in items) or sum(map(len, items)) > MAX_LENGTH)
    return _like(start, [*start, *chain.from_iterable(items)])


def _products(*lists: Any, repeat: int = 1) -> list[Any]:
    given = list(map(_listed, lists))
    width = max(1, repeat * len(given))
    unknown_if(not 0 <= repeat <= 10 or len(given) > 10 or math.prod(map(len, given)) ** repeat * width > MAX_LENGTH)
    return [TupleValue(one) for one in product(*given, repeat=repeat)]


def _zip(*lists: list[Any]) -> Any:
    unknown_if(len(lists) * min(map(len, lists), default=0) > MAX_LENGTH)
    return zip(*lists, strict=False)


def _round(number: Any, digits: Any = None) -> Any:
    unknown_if(digits is not None and abs(digits) > 30)
    return round(number, digits)


def store(owner: Any, key: Any, value: Any) -> None:
    """Set an entry of a list or mapping."""
    unknown_if(not isinstance(key, str | int) or isinstance(owner, TupleValue))
    owner[key] = value


def _set_default(owner: dict[Any, Any], key: str | int, value: Any = None) -> Any:
    if key not in owner:
        store(owner, key, value)
    return owner[key]


def delete(owner: Any, key: Any) -> None:
    """Delete an entry of a list or mapping."""
    unknown_if(not isinstance(owner, list | dict) or isinstance(owner, TupleValue) or not isinstance(key, str | int))
    found: Any = owner
    del found[key]


def entry(owner: Any, key: Any) -> Any:
    """Return an entry of a list, mapping or text."""
    if isinstance(owner, str | list | dict) and isinstance(key, str | int | slice):
        found: Any = owner
        return _like(owner, found[key]) if isinstance(key, slice) else found[key]
    raise UnknownValue


KNOWN_FUNCTIONS: Mapping[str, Operation] = {
    "abs": abs,
    "all": lambda items: all(_scalars(items)),
    "any": lambda items: any(_scalars(items)),
    "bool": bool,
    "chr": chr,
    "dict": _dict,
    "enumerate": lambda items, start=0: [TupleValue(one) for one in enumerate(_listed(items), start)],
    "float": lambda value=0.0: float(scalar(value)),
    "int": lambda value=0: int(scalar(value)),
    "len": len,
    "list": lambda items=(): list(items) if items == () else _listed(items),
    "max": lambda *items: max(_scalars(items[0] if len(items) == 1 else list(items))),
    "min": lambda *items: min(_scalars(items[0] if len(items) == 1 else list(items))),
    "ord": ord,
    "print": lambda *values, **settings: None,
    "range": _range,
    "reversed": lambda items: _listed(items)[::-1],
    "round": _round,
    "set": lambda items=(): list(dict.fromkeys(_scalars(list(items)))),
    "sorted": lambda items, reverse=False: sorted(_scalars(items), reverse=reverse),
    "str": lambda value="": str(scalar(value)),
    "sum": _total,
    "tuple": lambda items=(): TupleValue(items if items == () else _listed(items)),
    "zip": lambda *lists: [TupleValue(one) for one in _zip(*map(_listed, lists))],
    "copy.copy": lambda value: _like(value, value.copy()) if isinstance(value, list | dict) else scalar(value),
    "itertools.product": _products,
    "itertools.chain": lambda *lists: _total(list(map(_listed, lists)), []),
    "math.exp": math.exp,
    "numpy.exp": math.exp,
}
"""Name of a function → function with the same result. All arguments are known, but their entries may be unknown."""
KNOWN_METHODS: Mapping[tuple[type, str], Operation] = {
    **{(str, name): getattr(str, name) for name in (
        "capitalize", "endswith", "find", "isdigit", "lower", "lstrip", "removeprefix", "removesuffix", "rsplit",
        "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper",
    )},
    (str, "format"): _format,
    (str, "join"): _join,
    (str, "replace"): _replace,
    (dict, "copy"): dict,
    (dict, "get"): lambda owner, key, default=None: owner.get(scalar(key), default),
    (dict, "items"): lambda owner: [TupleValue(item) for item in owner.items()],
    (dict, "keys"): list,
    (dict, "pop"): lambda owner, key, *default: owner.pop(scalar(key), *default),
    (dict, "setdefault"): _set_default,
    (dict, "update"): lambda owner, *args, **keywords: owner.update(_dict(*args, **keywords)),
    (dict, "values"): lambda owner: list(owner.values()),
    (list, "append"): list.append,
    (list, "clear"): list.clear,
    (list, "copy"): list,
    (list, "extend"): lambda owner, items: owner.extend(_listed(items)),
    (list, "insert"): list.insert,
    (list, "pop"): list.pop,
    (list, "reverse"): list.reverse,
}  # fmt: skip
"""(type, name) of a method → function with the same effect and result."""
STORING = frozenset({"append", "get", "insert", "pop", "setdefault"})
"""The methods whose arguments may be unknown, because these methods do not look into the values they store."""
