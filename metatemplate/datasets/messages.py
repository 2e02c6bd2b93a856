"""Dataset templates written as OpenAI messages (``docs/spec/opencompass.md`` 2, RawPromptTemplate).

An entry is a message, the place of the examples (``ice_token``), or ``{expand_column: NAME}``, which is replaced by the
messages in a column of the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from metatemplate.datasets.prompt_list import ColumnValues, filled, filled_like_opencompass
from metatemplate.errors import TemplateFailure
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.json_values import changed

ROLES = ("system", "user", "assistant")
EXPAND = "expand_column"


class MessagesTemplate:
    """One template of messages. Raises ``TemplateFailure`` for a template that is not valid."""

    def __init__(
        self,
        messages: Sequence[Any],
        *,
        ice_token: str = "",
        column_tokens: Mapping[str, str] = EMPTY_MAPPING,
        exact: bool = False,
    ) -> None:
        """Create the template. ``column_tokens``: column → a text that is replaced with the column's value.

        ``exact``: the columns are filled as in OpenCompass: also inside values, but not in content parts.
        """
        self._messages = messages
        self._exact = exact
        self._fill, self._tokens = filled_like_opencompass if exact else filled, column_tokens
        for entry in messages:
            if isinstance(entry, str) and entry != ice_token:
                raise TemplateFailure(
                    f"{entry!r} is neither a message nor the ice_token: write {{role: …, content: …}}"
                )
            if isinstance(entry, Mapping) and EXPAND not in entry and entry.get("role") not in ROLES:
                raise TemplateFailure(f"a message's role must be one of {', '.join(ROLES)}, not {entry.get('role')!r}")
            if isinstance(entry, Mapping) and EXPAND not in entry and "content" not in entry:
                raise TemplateFailure("a message needs content: a text, or a list of parts")

    def generation(self, row: ColumnValues, shots: Sequence[Any] = ()) -> list[Any]:
        """Return the messages for a row. The examples are inserted at the place of ``ice_token``."""
        found: list[Any] = []
        for entry in self._messages:
            if isinstance(entry, str):
                found += shots
            elif EXPAND in entry:
                found += _expanded(row, entry[EXPAND])
            else:
                found.append({**entry, "content": self._content(entry["content"], row)})
        return found

    def _content(self, content: Any, row: ColumnValues) -> Any:
        """Return a message's content with its columns filled, also in the texts and addresses of content parts."""
        if self._exact and not isinstance(content, str):
            return content
        return changed(
            content, lambda value, key: self._fill(value, row, self._tokens) if isinstance(value, str) else value
        )


def _expanded(row: ColumnValues, column: str) -> list[Any]:
    value = row.get(column)
    if not isinstance(value, list) or not all(isinstance(item, Mapping) and item.get("role") for item in value):
        raise TemplateFailure(f"the variable {column} must be a list of messages")
    return value
