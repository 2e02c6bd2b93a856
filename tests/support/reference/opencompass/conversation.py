"""Conversations of a dataset as OpenAI's messages (``docs/spec/opencompass.md`` 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metatemplate.datasets.prompt_list import ColumnValues, PromptItems, is_marker
from metatemplate.datasets.template import DatasetTemplate
from metatemplate.errors import TemplateFailure

ROLES = {"SYSTEM": "system", "HUMAN": "user", "BOT": "assistant"}
"""Roles of datasets → roles of OpenAI's messages; turns of other roles are left out."""

Messages = list[dict[str, Any]]


def to_messages(prompt: PromptItems) -> Messages:
    """A prompt as messages; a string is a user message, an empty one none."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    messages: Messages = []
    for item in prompt:
        if isinstance(item, str):
            messages += [{"role": "user", "content": item}] if item else []
        elif not is_marker(item) and item["role"] in ROLES:
            messages.append({"role": ROLES[item["role"]], "content": item.get("prompt", "")})
    return messages


def conversation(
    sample: ColumnValues, columns: Sequence[str], output_column: str, template: DatasetTemplate | None = None
) -> Messages:
    """The conversation of a sample, the dataset's answers included. Other columns than these are not filled.

    Columns of strings give one exchange, columns of lists one exchange for each position. A single column that holds
    messages is the conversation itself.
    """
    sample = {name: value for name, value in sample.items() if name in columns or name == output_column}
    values = [sample.get(column) for column in columns]
    if len(values) == 1 and _holds(values[0], dict):
        return list(values[0] or ())
    if all(isinstance(value, str) for value in values):
        return _exchange(sample, columns, output_column, template)
    if not all(_holds(value, str) for value in values):
        raise TemplateFailure(f"the columns {', '.join(columns)} must all hold text, or all lists of text")
    names = [*columns, output_column]
    rows = zip(*[sample.get(name) or () for name in names], strict=False)
    return [
        message
        for row in rows
        for message in _exchange({**sample, **dict(zip(names, row, strict=True))}, columns, output_column, template)
    ]


def _exchange(
    sample: ColumnValues, columns: Sequence[str], output_column: str, template: DatasetTemplate | None
) -> Messages:
    if template is None and len(columns) > 1:
        raise TemplateFailure("several input columns need a template")
    messages = to_messages(sample[columns[0]] if template is None else template.generation(sample))
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": sample.get(output_column, "")})
    return messages


def _holds(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)
