"""The order of a prompt's parts (``docs/spec/lazyllm.md`` 8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.core.prompt import Segment, SegmentLabel, Segments
from gateway.template.lazyllm.dialects import PrompterDialect
from gateway.template.lazyllm.segments import TOOLS, strip_leading, template_text
from gateway.template.lazyllm.tokens import SpecialTokens

GENERATE: SegmentLabel = ("assistant", "generate", True)
RESPONSE = "### Response:\n"
"""Stands before the answer of the single-turn class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptParts:
    """The parts of a prompt."""

    system: Segments
    user: Segments
    """The instruction's user part, which stands before the current turn's text."""
    tools: str
    """The list of tools; empty without tools."""
    history: Sequence[Segment] = ()
    current: Sequence[Segment] = ()
    """The texts of the current turn, one per line; empty when a slot holds the user message."""
    current_label: SegmentLabel = ("", "template", True)
    """The label of the tokens around the current turn."""
    in_environment: bool = False
    """True: the current turn holds results of tools."""
    answer: Segment | None = None
    """The beginning of the answer, which the model continues."""


def assemble(form: str, parts: PromptParts, tokens: SpecialTokens, dialect: PrompterDialect) -> Segments:
    """The whole prompt of the class ``alpaca`` or ``chat``."""
    segments = tuple(_alpaca(parts, tokens, dialect) if form == "alpaca" else _chat(parts, tokens))
    if parts.answer is not None:
        segments = (*segments, parts.answer)
    return strip_leading(segments, "\n") if dialect.modern else segments


def _alpaca(parts: PromptParts, tokens: SpecialTokens, dialect: PrompterDialect) -> Iterable[Segment]:
    return (
        template_text(f"{tokens.system}\n"), *parts.system, template_text("\n"), Segment(parts.tools, *TOOLS),
        template_text(dialect.tail), *parts.user, Segment(RESPONSE, *GENERATE),
    )  # fmt: skip


def _chat(parts: PromptParts, tokens: SpecialTokens) -> Iterable[Segment]:
    begin, end = tokens.soh, tokens.eoh
    if parts.in_environment:
        begin, end = tokens.soe or begin, tokens.eoe or end
    return (
        template_text(tokens.sos + tokens.system), *parts.system, Segment(parts.tools, *TOOLS),
        template_text(f"{tokens.eos}\n\n"), *parts.history, Segment(f"\n{begin}\n", *parts.current_label), *parts.user,
        *_lines(parts.current, parts.current_label), Segment(f"\n{end}", *parts.current_label),
        Segment(f"{tokens.soa}\n", *GENERATE),
    )  # fmt: skip


def _lines(texts: Sequence[Segment], label: SegmentLabel) -> Iterable[Segment]:
    for number, text in enumerate(texts):
        if number:
            yield Segment("\n", *label)
        yield text
