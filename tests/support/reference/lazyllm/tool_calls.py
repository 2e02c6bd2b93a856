"""LazyLLM's own split of a finished answer into content and calls (``docs/spec/lazyllm.md`` 11)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.reference.lazyllm.errors import PrompterError
from tests.support.reference.lazyllm.json5 import NotJson5, read_json5


@dataclass(frozen=True, slots=True)
class ToolTokens:
    """The three tokens of a call; None or empty: the model has none."""

    start: str | None = None
    args: str | None = None
    end: str | None = None


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call as the model wrote it: mostly an object as arguments, sometimes raw text."""

    name: Any
    """Mostly text; LazyLLM also takes what a model writes there without quotes."""
    arguments: Any


@dataclass(frozen=True, slots=True)
class Extracted:
    """An answer taken apart."""

    content: str
    calls: tuple[FoundCall, ...] = ()


def extract_calls(output: str, tokens: ToolTokens, known: Collection[str] = ()) -> Extracted:
    """Content and calls of a complete answer.

    ``known``: names of tools that a call without tokens may name; calls with tokens may name any.
    Raises PrompterError where LazyLLM fails: a second call by name right after a first.
    """
    if tokens.start and tokens.start in output:
        content, *segments = output.split(tokens.start)
        calls = [call for segment in segments if (call := _marked(segment.strip(), tokens)) is not None]
        return Extracted(content, tuple(calls))
    return _by_lines(output, known) if known else Extracted(output)


def _marked(segment: str, tokens: ToolTokens) -> FoundCall | None:
    """What stands after a start token."""
    if not tokens.args:
        return _as_call(_up_to(segment, tokens.end).strip())
    if tokens.args not in segment:
        name = _up_to(segment, tokens.end).strip()
        return FoundCall(name, {}) if name else None
    name, rest, *_ = segment.split(tokens.args)  # a second one ends the arguments, in a string of theirs too
    return FoundCall(name.strip(), _value(_up_to(rest, tokens.end).strip())) if name.strip() else None


def _up_to(text: str, end: str | None) -> str:
    return text.split(end, 1)[0] if end else text


def _value(text: str) -> Any:
    """The arguments as a value, texts within texts unpacked as far as they go; the raw text when it is none."""
    value: Any = text
    while isinstance(value, str):
        try:
            value = read_json5(value)
        except NotJson5:
            break
    return value


def _as_call(text: str) -> FoundCall | None:
    """``{name: …, parameters: …}``."""
    try:
        found = read_json5(text)
    except NotJson5:
        return None
    return _call_of(found)


def _call_of(found: Any) -> FoundCall | None:
    if not isinstance(found, dict) or not found.get("name"):
        return None
    arguments = found.get("parameters", found.get("arguments", {}))
    return FoundCall(found["name"], _value(arguments) if isinstance(arguments, str) else arguments)


def _by_lines(output: str, known: Collection[str]) -> Extracted:
    """Calls on lines of their own. Lines behind a call are dropped until a line names an unknown tool."""
    kept: list[str] = []
    calls: list[FoundCall] = []
    in_call = False
    lines = output.strip().split("\n")
    for number, line in enumerate(lines):
        before = lines[number - 1].strip() if number else ""
        if line.startswith("{") and before in known:
            calls.append(FoundCall(before, "\n".join(lines[number:])))
            if not kept:  # a name line right after another call
                raise PrompterError("IndexError", "list index out of range")
            if kept[-1].strip() == before:
                kept.pop()
            in_call = True
        elif "{" in line and "name" in line:
            for entry in _entries(line):
                call = _call_of(entry)
                in_call = call is not None and isinstance(call.name, str) and call.name in known
                if call is not None and in_call:
                    calls.append(call)
        if not in_call:
            kept.append(line)
    return Extracted("\n".join(kept), tuple(calls))


def _entries(line: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a line, up to the first item that is not an object."""
    try:
        found = read_json5(line.strip())
    except NotJson5:
        return
    for entry in found if isinstance(found, list) else [found]:
        if not isinstance(entry, dict):
            return
        yield entry
