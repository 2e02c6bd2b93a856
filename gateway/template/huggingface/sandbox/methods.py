"""What does a method of a text, a mapping or a list cost? A price by the sizes of what it works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import Any

from gateway.template.huggingface.sandbox.meter import Beyond, Meter

MOST_ARGUMENT = 64
"""Characters of an argument whose use has a price: those of a filter, and what ``strip`` takes off."""


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
    text = method(*few(args), **kwargs)
    pay_stripping(meter, method.__self__, text, args)
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
        pay_replacing(meter, method.__self__, args[0], args[1])
    return method(*args, **kwargs)


def _joins(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if not args:
        return method(*args, **kwargs)
    values = meter.listed(args[0])
    if isinstance(values, Sized):
        meter.made(meter.weigh(values) + len(method.__self__) * len(values))
    return method(values, *args[1:], **kwargs)


def few(args: tuple[Any, ...]) -> tuple[Any, ...]:
    if args and type(args[0]) is str and len(args[0]) > MOST_ARGUMENT:
        raise Beyond
    return args


def pay_stripping(meter: Meter, text: str, stripped: str, args: tuple[Any, ...]) -> None:
    if args and type(args[0]) is str:
        meter.read((len(text) - len(stripped)) * (2 + len(args[0])))


def pay_replacing(meter: Meter, text: str, old: str, new: str) -> None:
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
