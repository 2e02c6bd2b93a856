"""The special tokens of a prompter, and LazyLLM's table of tokens by model family (``docs/spec/lazyllm.md`` 2, 11).

Template files write them under ``marks``, or take those of a family with ``marks_of``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from typing import Any

from gateway.template.lazyllm.dialects import CURRENT, PrompterDialect


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTokens:
    """The tokens of a model. None means not configured, which differs from empty in some places."""

    system: str = ""
    """The system sentence of the model; not a token, but configured like one."""
    sos: str = ""
    """Start of the system turn; ``eos`` is its end. Likewise ``h``: human, ``a``: assistant, ``e``: environment."""
    soh: str = ""
    soa: str = ""
    eos: str = ""
    eoh: str = ""
    eoa: str = ""
    soe: str | None = None
    eoe: str | None = None
    tool_start_token: str | None = None
    tool_end_token: str | None = None
    tool_args_token: str | None = None

    def updated(self, texts: Mapping[str, Any]) -> SpecialTokens:
        """These tokens with some replaced. Unknown names and None are ignored."""
        known = {name: text for name, text in texts.items() if name in TOKEN_NAMES and text is not None}
        return replace(self, **known)

    @property
    def tool_tokens(self) -> tuple[tuple[str, str | None], ...]:
        """The three tokens of a call by name, in the order in which LazyLLM substitutes them."""
        return tuple([(name, getattr(self, name)) for name in TOOL_TOKENS])


TOKEN_NAMES = tuple(field.name for field in fields(SpecialTokens))
TOOL_TOKENS = ("tool_start_token", "tool_args_token", "tool_end_token")


@cache
def _table() -> Mapping[str, Any]:
    text = resources.files(__package__).joinpath("families.json").read_text(encoding="utf-8")
    table: Mapping[str, Any] = json.loads(text)
    return table


def family_names() -> tuple[str, ...]:
    """Every family of the table."""
    return tuple(_table()["families"])


def family(name: str, dialect: PrompterDialect = CURRENT) -> Mapping[str, Any]:
    """A family's tokens, its ``stop_words``, and keys that no prompter reads. Raises KeyError.

    Releases before 0.2 have no tool tokens.
    """
    entry: Mapping[str, Any] = _table()["families"][name]
    return entry if dialect.modern else {key: text for key, text in entry.items() if key not in TOOL_TOKENS}


def default_tokens(dialect: PrompterDialect = CURRENT) -> SpecialTokens:
    """The tokens of a prompter without a model."""
    return SpecialTokens(**_table()["default" if dialect.modern else "default_0_1"])
