"""The special tokens of a prompter, and LazyLLM's table of tokens by model family (``docs/spec/lazyllm.md`` 2, 11).

A template file lists special tokens under ``marks``, or names a model family or a model with ``marks_of``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from metatemplate.prompters.dialects import CURRENT, PrompterDialect
from metatemplate.templates.spec import TOOL_TOKENS, SpecialTokens


@cache
def _table() -> Mapping[str, Any]:
    text = resources.files(__package__).joinpath("families.json").read_text(encoding="utf-8")
    table: Mapping[str, Any] = json.loads(text)
    return table


def family_names() -> tuple[str, ...]:
    """Return the names of all model families in the table."""
    return tuple(_table()["families"])


def family(name: str, dialect: PrompterDialect = CURRENT) -> Mapping[str, Any]:
    """Return LazyLLM's table entry for a model family, with tokens and ``stop_words``. Raises KeyError.

    LazyLLM releases before 0.2 have no tokens for tool calls.
    """
    entry: Mapping[str, Any] = _table()["families"][name]
    return entry if dialect.modern else {key: text for key, text in entry.items() if key not in TOOL_TOKENS}


def online_system(source: str) -> str | None:
    """Return the system sentence that LazyLLM sends to a provider's models; None for an unknown provider."""
    text: str | None = _table()["online"].get(source)
    return text


def family_of_model(model: str, dialect: PrompterDialect = CURRENT) -> str:
    """Return the family whose tokens LazyLLM uses for a model name or path; empty if there is no such family.

    See ``docs/spec/lazyllm.md`` 11.1. A path that ends in a slash has no name. Releases before 0.2 compare whole names.
    """
    name, table = model.rsplit("/", 1)[-1].lower(), _table()
    if not dialect.modern:
        return str(table["names_0_1"].get(name, ""))
    # LazyLLM compares the lowered name with names in their own spelling: two capitalised names are never found.
    if name in table["exact_names_without_tokens"] or not name.startswith(tuple(table["name_prefixes"])):
        return ""
    return max([key for key in family_names() if key in name], key=len, default="")


def default_tokens(dialect: PrompterDialect = CURRENT) -> SpecialTokens:
    """Return the special tokens of a prompter that has no model."""
    return SpecialTokens(**_table()["default" if dialect.modern else "default_0_1"])
