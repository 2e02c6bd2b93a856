"""What does a template file of ``kind: prompter`` say? Its keys, checked and frozen (design 4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gateway.template.lazyllm.marks import SpecialMarks


@dataclass(frozen=True, slots=True)
class PrompterSpec:
    """A prompter of LazyLLM with everything bound to it (``specs/lazyllm.md``)."""

    form: Literal["alpaca", "chat", "empty"]
    """The key ``class``."""
    marks: SpecialMarks
    """The family's of ``marks_of``, with the file's own ``marks`` over them."""
    instruction: str | tuple[str, str] = ""
    """Text, or (system, user); slots are written ``{name}``."""
    extra_keys: tuple[str, ...] = ()
    """More slots, each under a heading of its own."""
    input_slot: str = ""
    """The slot that the last user message fills; empty: it stands in a turn of its own."""
    history: tuple[tuple[str, str], ...] = ()
    """Pairs of user and assistant texts before every conversation."""
    tools: bool = False
    """True: a request's tools are written into the prompt."""
    stop_words: tuple[str, ...] = ()
    """The family's."""
    dialect: str = "1.4"
    exact: bool = False
    """True: byte for byte what the reference does, its accidents and refusals included."""
