"""LazyLLM's refusals of instructions, histories and inputs that no request to the gateway can bring.

Each raises ``PrompterError`` with the class and the words of LazyLLM's exception; what passes is given as the gateway
takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from metatemplate.prompters.assembly import Turn, pair_segments, turn_segments
from metatemplate.prompters.dialects import PrompterDialect
from metatemplate.prompters.instruction import TASK, USER_BEGINS, Instruction
from metatemplate.prompters.segments import template_text
from metatemplate.templates.spec import SpecialTokens
from metatemplate.values.prompt import Segment
from tests.support.reference.lazyllm.errors import PrompterError
from tests.support.reference.lazyllm.json5 import read_json5


def need(item: Mapping[str, Any], key: str) -> Any:
    """The value of a key that must be there."""
    if key not in item:
        raise PrompterError("KeyError", repr(key))
    return item[key]


def type_name(value: Any) -> str:
    return type(value).__name__


# ---------------------------------------------------------------- instructions


def instruction_of(form: str, given: Any, dialect: PrompterDialect) -> Instruction:
    """The constructor's argument ``instruction``."""
    if not isinstance(given, Mapping) or dialect.parts == "none":
        if form == "alpaca" and dialect.modern:
            return _sum(TASK, given or "").removeprefix(TASK)
        return "" if dialect.modern and not given else str(given)
    system, user = given.get("system") or "", given.get("user") or ""
    _sum(system, USER_BEGINS, user)
    return system, user


def _sum(first: Any, *further: Any) -> str:
    """The texts, one after the other; what is no text fails as Python's ``+`` fails."""
    total = first
    try:
        for part in further:
            total = total + part
    except TypeError as error:
        raise PrompterError("TypeError", str(error)) from error
    return str(total)


def extra_keys_of(keys: Any) -> tuple[Any, ...]:
    """The constructor's argument ``extra_keys``."""
    if not keys:
        return ()
    if isinstance(keys, str):
        return (keys,)
    if not isinstance(keys, (list, tuple)):
        raise PrompterError("AssertionError", "Only str, tuple[str], list[str] are supported")
    return tuple(keys)


# ---------------------------------------------------------------- histories


def history_segments(own: Any, called: Any, tokens: SpecialTokens, dialect: PrompterDialect) -> Iterator[Segment]:
    """The turns as text: the constructor's, then the call's. The call's first item decides how all are read."""
    yield from pair_segments([_pair(item) for item in own or ()], tokens)
    if not called:
        return
    first = called[0]
    if isinstance(first, list):
        yield from pair_segments([_pair(item) for item in called], tokens)
    elif isinstance(first, dict) and dialect.modern:
        for number, item in enumerate(called):
            turn = _turn(item, number, tokens)
            if turn is not None:
                yield from turn_segments((turn,), tokens, dialect)
    else:
        text = "{type(history[0])} now" if dialect.modern else "list now"
        raise PrompterError("NotImplementedError", f"Cannot transform json history to {text}")


def _pair(item: Any) -> tuple[str, str]:
    """What Python unpacks into two: a pair, or a dictionary of two keys."""
    if not isinstance(item, (list, tuple, str, dict)):
        raise PrompterError("TypeError", f"cannot unpack non-iterable {type_name(item)} object")
    if len(item) < 2:
        raise PrompterError("ValueError", f"not enough values to unpack (expected 2, got {len(item)})")
    if len(item) > 2:
        raise PrompterError("ValueError", "too many values to unpack (expected 2)")
    user, assistant = tuple(item)
    return str(user), str(assistant)


def _printed(content: str) -> str:
    """A tool's result as Python prints its JSON5 value; other text as it is."""
    try:
        return str(read_json5(content.strip()))
    except ValueError:  # not JSON5, or a number with too many digits to print
        return content


_NO_KEYS: Mapping[type, str] = {
    str: "string indices must be integers, not 'str'",
    list: "list indices must be integers or slices, not str",
    tuple: "tuple indices must be integers or slices, not str",
}
"""Python's words for a key of what has none."""


def _turn(item: Any, number: int, tokens: SpecialTokens) -> Turn | None:
    """None: LazyLLM drops messages of other roles."""
    if not isinstance(item, Mapping):
        raise PrompterError("TypeError", _NO_KEYS.get(type(item), f"'{type_name(item)}' object is not subscriptable"))
    role = need(item, "role")
    if role == "user":
        return Turn(number, role, str(need(item, "content")))
    if role == "tool":
        content = need(item, "content")
        return Turn(number, role, _printed(content) if isinstance(content, str) else str(content))
    if role != "assistant":
        return None
    calls = item.get("tool_calls", ())
    if calls is None:
        raise PrompterError("TypeError", "'NoneType' object is not iterable")
    functions = [need(call, "function") for call in calls]
    if tokens.tool_args_token:
        for function in functions:
            need(function, "name")
            need(function, "arguments")
    return Turn(number, role, str(item.get("content", "")), functions)


# ---------------------------------------------------------------- inputs


def check_input(given: Any, dialect: PrompterDialect) -> None:
    """The call's argument ``input``."""
    if isinstance(given, (str, int, dict)):
        return
    if not dialect.modern:
        raise PrompterError("AssertionError")
    raise PrompterError("AssertionError", f"expected types are str, int and dict, bug get {type(given)}(`{given})`")


def current_segments(rest: Any, dialect: PrompterDialect) -> tuple[tuple[Segment, ...], bool]:
    """The current turn's texts, and whether they are results of tools."""
    if not dialect.modern or not isinstance(rest, (list, dict)):
        return (template_text(str(rest)),), False
    if isinstance(rest, dict) or not all(isinstance(message, dict) for message in rest):
        # A single message is taken for a list of its keys.
        raise PrompterError("AttributeError", "'str' object has no attribute 'get'")
    texts = [message.get("content", "") for message in rest]
    check_joinable(texts)
    return tuple(map(template_text, texts)), any(message.get("role") == "tool" for message in rest)


def check_joinable(parts: Sequence[Any]) -> None:
    """What ``str.join`` refuses."""
    for number, part in enumerate(parts):
        if not isinstance(part, str):
            raise PrompterError("TypeError", f"sequence item {number}: expected str instance, {type_name(part)} found")


def check_concatenated(value: Any) -> None:
    """What ``str + value`` refuses."""
    if not isinstance(value, str):
        raise PrompterError("TypeError", f'can only concatenate str (not "{type_name(value)}") to str')
