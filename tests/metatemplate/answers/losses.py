"""What a tool-call format cannot carry of a call's arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tests.metatemplate.answers.published import FAMILIES, TYPES, Answer, Writer
from tests.metatemplate.answers.read_back import plain

writer_of = cache(Writer)
UNTYPED = ("qwen3_coder", "glm45", "minimax_m2")
"""Formats that write a string and any other value alike, so that the schema has to tell them apart."""
LOSSES: dict[str, tuple[Sequence[str], Callable[[Mapping[str, Any], Any, Writer], bool]]] = {
    # reason: (formats, whether an argument with this schema and value cannot be carried)
    "a string that reads as another value, for an argument without a type": (
        UNTYPED,
        lambda schema, value, writer: schema in TYPES["any"] and isinstance(value, str) and is_value(value),
    ),
    "the string null or None, for an argument that may be null": (
        UNTYPED,
        lambda schema, value, writer: '"null"' in plain(schema) and value in ("null", "None"),
    ),
    "the end of a call in a string": (
        (*UNTYPED, "deepseek_v32", "deepseek_v4"),
        lambda schema, value, writer: writer.tail in (value if isinstance(value, str) else plain(value)),
    ),
    "the quote of the format in a string": (
        ("gemma4", "functiongemma"),
        lambda schema, value, writer: any(
            mark in text for text in strings(value) for mark in ("<escape>", '<|"|>') if mark in writer.marks
        ),
    ),
}


def is_value(text: str) -> bool:
    """Whether a text without quotes is JSON, or a word of Python that some templates write."""
    try:
        json.loads(text)
    except ValueError:
        return text in ("True", "False", "None")
    return True


def strings(value: Any) -> Iterator[str]:
    """The strings in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def losses(answer: Answer) -> set[str]:
    """What the format of an answer cannot carry of its arguments."""
    writer, parser = writer_of(answer.family), FAMILIES[answer.family].parser
    schemas = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in answer.tools}
    return {
        reason
        for reason, (formats, is_lost) in LOSSES.items()
        if parser in formats
        and any(
            is_lost(schemas[name][key], value, writer)
            for name, arguments in answer.calls
            for key, value in arguments.items()
        )
    }
