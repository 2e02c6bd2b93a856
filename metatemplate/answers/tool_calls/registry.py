"""The table of tool-call formats. A new format is a row in ``formats.yaml``; the readers are a closed set."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from importlib import resources
from typing import Any

import yaml

from metatemplate.answers.tool_calls.format import Format
from metatemplate.answers.tool_calls.readers.channels import channels_format
from metatemplate.answers.tool_calls.readers.json_calls import JsonCalls
from metatemplate.answers.tool_calls.readers.lazyllm import lazyllm
from metatemplate.answers.tool_calls.readers.parameters import Parameters
from metatemplate.answers.tool_calls.readers.python_calls import python_format
from metatemplate.answers.tool_calls.readers.quoted import quoted_format
from metatemplate.values.answer_markers import ToolTokens

READERS: Mapping[str, Callable[..., Format]] = {
    "json": lambda **texts: JsonCalls(**texts).format(),
    "parameters": lambda **texts: Parameters(**texts).format(),
    "quoted": quoted_format,
    "channels": channels_format,
    "python": python_format,
}


FENCED = re.compile(r"(?ms)^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1|\Z)|`[^`\n]*`")
"""A fenced block of Markdown, or code in a line."""


def _format(name: str, *, reader: str, **texts: Any) -> Format:
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in texts.items()}
    return replace(READERS[reader](**given), name=name)


def _always(fixed: Format) -> Callable[[ToolTokens, Collection[str]], Format]:
    return lambda tokens, names: fixed


_ROWS = yaml.safe_load(resources.files(__package__).joinpath("formats.yaml").read_text(encoding="utf-8"))
FIXED: Mapping[str, Format] = {name: _format(name, **row) for name, row in _ROWS.items()}
"""The formats that are the same for all templates."""
FORMATS: Mapping[str, Callable[[ToolTokens, Collection[str]], Format]] = {
    **{name: _always(fixed) for name, fixed in FIXED.items()},
    "lazyllm": lazyllm,
}
"""``tools.parser`` → function that returns the format. Only ``lazyllm`` uses its arguments: tokens and tool names."""


def unread_calls(content: str) -> tuple[str, ...]:
    """Return the names of the formats of which a call begins in the content of an answer, outside Markdown's code."""
    found = {
        name: [match.start() for match in re.finditer(one.sign, content)] for name, one in FIXED.items() if one.sign
    }
    code = [match.span() for match in FENCED.finditer(content)] if any(found.values()) else []

    def is_code(at: int) -> bool:
        before = bisect(code, at, key=lambda span: span[0])
        return before > 0 and at < code[before - 1][1]

    names = [name for name, starts in found.items() if not all(map(is_code, starts))]
    # formats with the same calls differ in the text before the first one
    sure = [
        name for name in names if any(content.find(FIXED[name].before, max(0, at - 64), at) >= 0 for at in found[name])
    ]
    return tuple(sure or names)
