"""Prompts of datasets: strings, and lists of strings, turns and section markers (``docs/spec/opencompass.md`` 1).

Functions return new values; nothing is changed in place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gateway.core.errors import TemplateError

DatasetPrompt = str | list[Any]
"""A string, or a list of strings, turns (``role``, ``prompt`` …) and markers (``section``, ``pos``)."""
Values = Mapping[str, Any]
Fill = Callable[[str, Values], str]
"""Replaces the fields of a text: ``fill_once`` or ``fill_repeatedly``."""

MARKER_KEYS = frozenset({"section", "pos"})


def fill_once(text: str, values: Values) -> str:
    """Replace every ``{name}`` by ``str(value)`` in one pass: a value is never searched for fields.

    Unknown fields stay as they are. There are no escapes and no format specifications.
    """
    if not values or "{" not in text:
        return text
    fields = "|".join(re.escape(name) for name in sorted(values, key=len, reverse=True))
    return re.sub("{(" + fields + ")}", lambda match: str(values[match[1]]), text)


def fill_repeatedly(text: str, values: Values) -> str:
    """Replace the fields one after the other, as OpenCompass does: fields inside earlier values are replaced too."""
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def filled(prompt: DatasetPrompt, values: Values, fill: Fill) -> DatasetPrompt:
    """The prompt with the fields of its strings, and of its turns' ``prompt``, replaced; other keys stay."""
    return _mapped(prompt, lambda text: fill(text, values))


def with_text(prompt: DatasetPrompt, token: str | None, text: str) -> DatasetPrompt:
    """The prompt with ``token`` replaced by ``text``; an item that becomes empty stays."""
    return _mapped(prompt, lambda one: one.replace(token, text)) if token else prompt


def with_shots(prompt: DatasetPrompt, token: str | None, shots: DatasetPrompt) -> DatasetPrompt:
    """The prompt with its shots in place of ``token``.

    A list of shots splits the strings that hold the token, whose empty pieces are left out. Raises ``TemplateError``
    where turns would stand inside a text.
    """
    if isinstance(shots, str) or not token:
        return with_text(prompt, token, shots if isinstance(shots, str) else "")
    if isinstance(prompt, str):
        raise TemplateError("shots written as a dialogue cannot stand in a string template; write both in one form")
    items: list[Any] = []
    for item in prompt:
        if isinstance(item, str):
            first, *others = item.split(token)
            items += [first] if first or not others else []
            for piece in others:
                items += [*shots, piece] if piece else shots
        elif token in item.get("prompt", ""):
            raise TemplateError(
                f"shots written as a dialogue cannot stand inside a turn; give {token} an item of its own"
            )
        else:
            items.append(item)
    return items


def joined(first: DatasetPrompt, second: DatasetPrompt) -> DatasetPrompt:
    """One prompt after another; a string beside a list becomes an item, unless it is empty."""
    if isinstance(first, str) and isinstance(second, str):
        return first + second
    left = [first] if isinstance(first, str) and first else list(first)
    return [*left, *([second] if isinstance(second, str) and second else second)]


def marker(section: str, pos: str) -> dict[str, str]:
    """The beginning or the end of a section."""
    return {"section": section, "pos": pos}


def is_marker(item: object) -> bool:
    """True for a section marker, False for a turn or a string."""
    return isinstance(item, Mapping) and item.keys() == MARKER_KEYS


def _mapped(prompt: DatasetPrompt, change: Callable[[str], str]) -> DatasetPrompt:
    return change(prompt) if isinstance(prompt, str) else [_mapped_item(item, change) for item in prompt]


def _mapped_item(item: Any, change: Callable[[str], str]) -> Any:
    if isinstance(item, str):
        return change(item)
    if isinstance(item, Mapping) and isinstance(item.get("prompt", ""), str):
        return {**item, "prompt": change(item["prompt"])} if "prompt" in item else dict(item)
    raise TemplateError("an item of a dialogue must be a text, or a turn with a role and a prompt")
