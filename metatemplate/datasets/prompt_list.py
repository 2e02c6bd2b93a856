"""Prompts of datasets: strings, and lists of strings, turns and section markers (``docs/spec/opencompass.md`` 1).

All functions return new values and change nothing in place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from metatemplate.errors import TemplateFailure
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.json_values import texts_in_values

PromptItems = str | list[Any]
"""A string, or a list of strings, turns (``role``, ``prompt`` …) and markers (``section``, ``pos``)."""
ColumnValues = Mapping[str, Any]
"""Column → value."""
Change = Callable[[str], str]

MARKER_KEYS = frozenset({"section", "pos"})
COLUMN = r"\{([^{}]*)\}"
"""The place of a column's value in a text, such as ``{question}``. Escapes and format specifications do not exist."""
MAX_TEXT = 2_000_000
"""The largest number of characters of a text filled as in OpenCompass. Columns inside values can multiply the text."""
COLUMN_PATTERN = re.compile(COLUMN)


def filled(text: str, row: ColumnValues, column_tokens: Mapping[str, str]) -> str:
    """Return a text with the values of a row in place of the columns and the tokens, replaced in one pass.

    ``column_tokens``: column → a further text that is replaced with the column's value. A value is never searched for
    columns or tokens, so a question that contains ``{answer}`` is not changed. Columns that the row lacks are not
    filled. A value that is not a string is written as Python's ``str`` writes it.
    """
    columns = {token: column for column, token in column_tokens.items()}

    def value(match: re.Match[str]) -> str:
        name = columns[match[0]] if match[1] is None else match[1]
        return str(row[name]) if name in row else match[0]

    tokens = sorted(columns, key=len, reverse=True)
    return re.sub("|".join([*map(re.escape, tokens), COLUMN]), value, text)


def filled_like_opencompass(text: str, row: ColumnValues, column_tokens: Mapping[str, str]) -> str:
    """Return a text with the columns replaced one after the other: columns inside earlier values are replaced too."""
    for column, token in column_tokens.items():
        if column in row:
            text = text.replace(token, str(row[column]))
    for name, value in row.items():
        column, written = "{" + name + "}", str(value)
        if len(text) + text.count(column) * len(written) > MAX_TEXT:
            raise TemplateFailure(f"the filled text has more than {MAX_TEXT} characters; shorten the values")
        text = text.replace(column, written)
    return text


def mapped(prompt: PromptItems, change: Change) -> PromptItems:
    """Apply ``change`` to the strings of a prompt and to the ``prompt`` of each turn, and to nothing else."""
    return change(prompt) if isinstance(prompt, str) else [_mapped_item(item, change) for item in prompt]


def replaced(prompt: PromptItems, token: str, text: str) -> PromptItems:
    """Return the prompt with ``token`` replaced. Items that become empty are kept."""
    return mapped(prompt, lambda item: item.replace(token, text)) if token else prompt


def with_shots(prompt: PromptItems, token: str, shots: PromptItems, change: Change = str) -> PromptItems:
    """Return the prompt with the examples in place of ``token``. ``change`` is applied to all text except the examples.

    A list of examples splits the strings that contain the token; empty pieces are left out. Raises ``TemplateFailure``
    if examples that are turns would be inside a text.
    """
    if not token:
        return mapped(prompt, change)
    if isinstance(shots, str):
        return mapped(prompt, lambda text: shots.join([change(piece) for piece in text.split(token)]))
    if isinstance(prompt, str):
        raise TemplateFailure("examples that are a dialogue cannot be in a string template; write both as dialogues")
    items: list[Any] = []
    for item in prompt:
        if isinstance(item, str):
            first, *others = item.split(token)
            items += [change(first)] if first or not others else []
            for piece in others:
                items += [*shots, change(piece)] if piece else shots
        elif token in item.get("prompt", ""):
            raise TemplateFailure(
                f"examples that are a dialogue cannot be inside a turn; write {token} as a separate entry"
            )
        else:
            items.append(_mapped_item(item, change))
    return items


def joined(first: PromptItems, second: PromptItems) -> PromptItems:
    """Return ``first`` followed by ``second``. A string next to a list becomes an item, unless the string is empty."""
    if isinstance(first, str) and isinstance(second, str):
        return first + second
    left = [first] if isinstance(first, str) and first else list(first)
    return [*left, *([second] if isinstance(second, str) and second else second)]


def marker(section: str, pos: str) -> dict[str, str]:
    """Return the marker of the beginning or the end of a section."""
    return {"section": section, "pos": pos}


def is_marker(item: object) -> bool:
    """Return whether an item is a section marker."""
    return isinstance(item, Mapping) and item.keys() == MARKER_KEYS


def without_markers(prompt: PromptItems) -> PromptItems:
    """Return a list without section markers and empty strings. A string is returned unchanged."""
    return prompt if isinstance(prompt, str) else [item for item in prompt if item != "" and not is_marker(item)]


def columns_in(value: Any, column_tokens: Mapping[str, str] = EMPTY_MAPPING) -> list[str]:
    """Return the names of the columns inside a template, in the order of the text, then the columns of the tokens."""
    found = texts_in_values(value)
    names = [name for text in found for name in COLUMN_PATTERN.findall(text) if name.isidentifier()]
    names += [column for column, token in column_tokens.items() if any(token in text for text in found)]
    return list(dict.fromkeys(names))


def _mapped_item(item: Any, change: Change) -> Any:
    if isinstance(item, str):
        return change(item)
    if isinstance(item, Mapping) and isinstance(item.get("prompt", ""), str):
        return {**item, "prompt": change(item["prompt"])} if "prompt" in item else dict(item)
    raise TemplateFailure("an entry of a dialogue must be a text, or a turn with a role and a prompt")
