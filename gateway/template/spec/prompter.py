"""The checked content of a template file of ``kind: prompter``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gateway.template.lazyllm.tokens import SpecialTokens
from gateway.template.spec.tools import Word


@dataclass(frozen=True, slots=True, kw_only=True)
class PrompterSpec:
    """A LazyLLM prompter with its tokens (``docs/spec/lazyllm.md``)."""

    form: Literal["alpaca", "chat", "empty"]
    """The key ``class``."""
    tokens: SpecialTokens
    """Those of the family ``marks_of``, with the file's own ``marks`` over them."""
    instruction: str | tuple[str, str] = ""
    """Text, or (system, user); slots are written ``{name}``."""
    extra_keys: tuple[Word, ...] = ()
    """More slots, each under a heading of its own."""
    input_slot: Word = ""
    """The slot that the last user message fills; empty: the message has a turn of its own."""
    history: tuple[tuple[str, str], ...] = ()
    """Pairs of user and assistant texts before every conversation."""
    tools: bool = False
    """True: a request's tools are written into the prompt."""
    stop_words: tuple[str, ...] = ()
    """Those of the family."""
    dialect: str = "1.4"
    exact: bool = False
    """True: byte for byte what LazyLLM does, its accidents and refusals included."""
