"""Which special tokens belong to a model's name? The reference's table, shipped as data (``families.json``).

The lookup is the reference's (``specs/lazyllm.md`` 11.1): a list of names without tokens, a list of first words,
then the longest family that the name contains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.template.lazyllm.dialects import CURRENT, Dialect
from gateway.template.lazyllm.marks import TOOL_TOKENS, SpecialMarks


@cache
def table() -> Mapping[str, Any]:
    """The shipped file; read once, a part of the package like its code."""
    text = resources.files(__package__).joinpath("families.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def family_names() -> tuple[str, ...]:
    """Every family of the table."""
    return tuple(table()["families"])


def family(name: str) -> Mapping[str, Any]:
    """A family's entry: marks, ``stop_words``, and keys that no prompter reads. Raises KeyError."""
    entry: Mapping[str, Any] = table()["families"][name]
    return entry


def marks_for(model: str, dialect: Dialect = CURRENT) -> Mapping[str, Any]:
    """The entry for a model's name or path; empty for a model that the table does not know.

    A path that ends in a slash has no last part, so nothing is known of it, as in the reference.
    """
    lowered = model.rsplit("/", 1)[-1].lower()
    if not dialect.modern:
        return _early(lowered)
    # The reference compares the lowered name with the list as it is spelled: two capitalised names never match.
    if lowered in table()["exact_names_without_tokens"] or not lowered.startswith(tuple(table()["name_prefixes"])):
        return EMPTY_MAPPING
    within = [key for key in family_names() if key in lowered]
    return family(max(within, key=len)) if within else EMPTY_MAPPING


def _early(name: str) -> Mapping[str, Any]:
    """The 0.1 releases list whole names, and know no tool tokens."""
    listed = table()["names_0_1"].get(name)
    return (
        EMPTY_MAPPING
        if listed is None
        else {key: text for key, text in family(listed).items() if key not in TOOL_TOKENS}
    )


def default_marks(dialect: Dialect = CURRENT, *, built_in_system: bool = True) -> SpecialMarks:
    """What stands when no model is known. ``built_in_system``: False as with ``disable_system_prompt``."""
    texts = table()["default" if dialect.modern else "default_0_1"]
    return SpecialMarks(**(texts if built_in_system else {**texts, "system": ""}))
