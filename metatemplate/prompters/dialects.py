"""The differences between releases of LazyLLM (``docs/spec/lazyllm.md`` 12), and the requests that it refuses.

``1.4`` is the current behaviour. ``0.1`` is release 0.1.1, which wrote the prompts in LazyLLM's documentation.
``0.1.2`` is a release between these two, which added ``{system, user}`` instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from metatemplate.errors import InvalidInput
from metatemplate.values.words import in_ascii


@dataclass(frozen=True, slots=True, kw_only=True)
class PrompterDialect:
    """The behaviour of one release of LazyLLM. The default values describe release 1.4."""

    name: str
    heading: str = "\n\n### Instruction:\n"
    """The text after the first sentence in a prompt of the class ``alpaca``."""
    tail: str = "\n"
    """The text between the tools and the user part in a prompt of the class ``alpaca``."""
    parts: Literal["all", "line", "none"] = "all"
    """Where an instruction with system and user parts is split: across lines (``all``), in one line (``line``), nowhere
    (``none``)."""
    modern: bool = True
    """Whether the release is at least 0.2: JSON5, a preamble for tools, tool messages in histories, no leading line
    breaks."""


DIALECTS: Mapping[str, PrompterDialect] = {
    "1.4": PrompterDialect(name="1.4"),
    "0.1.2": PrompterDialect(name="0.1.2", heading="\n\n ### Instruction:\n", parts="line", modern=False),
    "0.1": PrompterDialect(name="0.1", heading="\n\n ### Instruction:\n", tail="", parts="none", modern=False),
}
CURRENT = DIALECTS["1.4"]


def refusal(exception: str, text: str) -> InvalidInput:
    """Return the error for a request that LazyLLM refuses too, with the class and the text of its exception."""
    shown = in_ascii(f"{exception}: {text}", 80)
    return InvalidInput(f"the prompter of this model refuses the request, as LazyLLM does: {shown}", param="messages")
