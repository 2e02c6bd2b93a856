"""How are earlier turns written? Pairs or messages, as text or as messages (``specs/lazyllm.md`` 6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gateway.template.lazyllm.dialects import Dialect
from gateway.template.lazyllm.errors import PrompterError, missing_key
from gateway.template.lazyllm.json5_read import NotJson5, read_json5
from gateway.template.lazyllm.json5_write import write_json5
from gateway.template.lazyllm.marks import SpecialMarks
from gateway.template.lazyllm.runs import Run, Runs


def history_runs(own: Any, called: Any, marks: SpecialMarks, dialect: Dialect) -> Runs:
    """The turns as text: the constructor's, then the call's."""
    found: list[Run] = []
    for item in own or ():
        found += _pair(item, marks, "history")
    if called:
        writer = _writer(called[0], dialect)
        for number, item in enumerate(called):
            found += writer(item, marks, f"history[{number}]")
    return tuple(found)


def history_messages(own: Any, called: Any) -> list[Any]:
    """The turns as messages; messages pass untouched."""
    found: list[Any] = []
    for item in (*(own or ()), *(called or ())):
        if isinstance(item, dict):
            found.append(item)
        elif isinstance(item, list):
            if len(item) > 2:
                raise PrompterError("AssertionError", "history item length cannot be greater than 2")
            found += [{"role": role, "content": text} for role, text in zip(("user", "assistant"), item, strict=False)]
        else:
            raise PrompterError("ValueError", "history must be a list of list or dict")
    return found


Writer = Callable[[Any, SpecialMarks, str], Iterator[Run]]


def _writer(first: Any, dialect: Dialect) -> Writer:
    """Who writes the items; the first one decides for all."""
    if isinstance(first, list):
        return _pair
    if isinstance(first, dict) and dialect.modern:
        return _message
    said = "{type(history[0])} now" if dialect.modern else "list now"
    raise PrompterError("NotImplementedError", f"Cannot transform json history to {said}")


def _pair(item: Any, marks: SpecialMarks, origin: str) -> Iterator[Run]:
    """Whatever unpacks into two: a pair, or a dictionary of two keys."""
    if not isinstance(item, (list, tuple, str, dict)):
        raise PrompterError("TypeError", f"cannot unpack non-iterable {_type_name(item)} object")
    if len(item) != 2:
        said = (
            f"not enough values to unpack (expected 2, got {len(item)})"
            if len(item) < 2
            else "too many values to unpack (expected 2)"
        )
        raise PrompterError("ValueError", said)
    human, answer = tuple(item)
    yield Run(marks.soh, origin)
    yield Run(str(human), origin, True)
    yield Run(marks.eoh + marks.soa, origin)
    yield Run(str(answer), origin, True)
    yield Run(marks.eoa, origin)


def _type_name(value: Any) -> str:
    return type(value).__name__


# ---------------------------------------------------------------- messages


def _message(item: Any, marks: SpecialMarks, origin: str) -> Iterator[Run]:
    if not isinstance(item, Mapping):
        raise PrompterError("TypeError", _NO_KEYS.get(type(item), f"'{_type_name(item)}' object is not subscriptable"))
    writer = _ROLES.get(need(item, "role"))
    if writer is not None:  # any other role is dropped by the reference
        yield from writer(item, marks, origin)


_NO_KEYS: Mapping[type, str] = {
    str: "string indices must be integers, not 'str'",
    list: "list indices must be integers or slices, not str",
    tuple: "tuple indices must be integers or slices, not str",
}
"""What Python says of a key where there are none; the reference asks whatever stands in the list."""


def _user(item: Mapping[str, Any], marks: SpecialMarks, origin: str) -> Iterator[Run]:
    yield Run(marks.soh, origin)
    yield Run(str(need(item, "content")), origin, True)
    yield Run(marks.eoh, origin)


def _assistant(item: Mapping[str, Any], marks: SpecialMarks, origin: str) -> Iterator[Run]:
    yield Run(marks.soa, origin)
    yield Run(str(item.get("content", "")), origin, True)
    yield from _calls(item.get("tool_calls", ()), marks, origin)
    yield Run(marks.eoa, origin)


def _calls(calls: Any, marks: SpecialMarks, origin: str) -> Iterator[Run]:
    if calls is None:
        raise PrompterError("TypeError", "'NoneType' object is not iterable")
    for call in calls:
        function = need(call, "function")
        yield Run((marks.tool_start_token or "") + "\n", origin)
        if marks.tool_args_token:
            yield Run(str(need(function, "name")), origin, True)
            yield Run(marks.tool_args_token, origin)
            yield Run(write_json5(need(function, "arguments")), origin, True)
        else:
            yield Run(str(function), origin, True)
        yield Run((marks.tool_end_token or "") + "\n", origin)


def _tool(item: Mapping[str, Any], marks: SpecialMarks, origin: str) -> Iterator[Run]:
    yield Run(marks.soe or "", origin)
    yield Run(tool_result(need(item, "content")), origin, True)
    yield Run(marks.eoe or "", origin)


BEYOND_JSON5 = ("\u2028", "\u2029", "\\ud", "\\uD")
"""In strings these are JSON, and the reference's reader refuses them."""


class Printed(str):
    """A tool's result that needs no reading any more."""

    __slots__ = ()


def tool_result(content: Any) -> str:
    """A tool's result as the reference prints it: Python's view of its JSON5 value, or the text as it is."""
    if isinstance(content, Printed):
        return content
    if not isinstance(content, str):
        return str(content)
    printed = json_result(content)
    if printed is not None:
        return printed
    try:
        return str(read_json5(content.strip()))
    except (NotJson5, ValueError):  # a number may have too many digits to be printed
        return content


def json_result(content: str) -> str | None:
    """``tool_result`` of plain JSON, a hundred times as fast; None for anything that may be more, or less."""
    if any(odd in content for odd in BEYOND_JSON5):
        return None
    try:
        return str(json.loads(content))
    except (ValueError, RecursionError):
        return None


def need(item: Mapping[str, Any], key: str) -> Any:
    """The key's value. Raises PrompterError as the reference's look-up does."""
    if key not in item:
        raise missing_key(key)
    return item[key]


_ROLES: Mapping[str, Writer] = {"user": _user, "assistant": _assistant, "tool": _tool}


def last_content(messages: Sequence[Any]) -> Any:
    """The content of the last message; the user part goes before it."""
    if not messages:
        raise PrompterError("IndexError", "list index out of range")
    return need(messages[-1], "content")
