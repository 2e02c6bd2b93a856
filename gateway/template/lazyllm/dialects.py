"""The releases of LazyLLM that can be repeated, one row for each dialect (``docs/spec/lazyllm.md`` 12), and its errors.

``1.4`` is the current behaviour. ``0.1`` is release 0.1.1, whose outputs LazyLLM's documentation prints.
``0.1.2`` stands between them: it added ``{system, user}`` instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.core.errors import TemplateError


@dataclass(frozen=True, slots=True, kw_only=True)
class PrompterDialect:
    """The behaviour of one release; the defaults are those of 1.4."""

    name: str
    heading: str = "\n\n### Instruction:\n"
    """Alpaca: the text behind the first sentence."""
    tail: str = "\n"
    """Alpaca: the text between tools and user part."""
    parts: Literal["all", "line", "none"] = "all"
    """The splitting of ``{system, user}`` instructions: across lines, within one line only, or not at all."""
    formats_mappings: bool = False
    """True: a dictionary of values goes through ``str.format`` too, so JSON in an instruction fails."""
    modern: bool = True
    """Release 0.2 or later: JSON5, the preamble of tools, tool messages in histories, no leading line breaks."""


DIALECTS: Mapping[str, PrompterDialect] = {
    "1.4": PrompterDialect(name="1.4"),
    "0.1.2": PrompterDialect(name="0.1.2", heading="\n\n ### Instruction:\n", parts="line", modern=False),
    "0.1": PrompterDialect(
        name="0.1", heading="\n\n ### Instruction:\n", tail="", parts="none", formats_mappings=True, modern=False
    ),
}
CURRENT = DIALECTS["1.4"]


class PrompterError(TemplateError):
    """LazyLLM raises an exception here. The message has the exception's class and text, word for word."""

    def __init__(self, exception: str, text: str = "") -> None:
        super().__init__(f"{exception}: {text}")
