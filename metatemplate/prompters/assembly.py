"""Writes earlier turns as text, and puts the parts of a prompt in order (``docs/spec/lazyllm.md`` 6, 8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from metatemplate.prompters.dialects import DIALECTS, PrompterDialect, refusal
from metatemplate.prompters.json5 import write_json5
from metatemplate.prompters.segments import TOOLS, strip_leading, template_text
from metatemplate.templates.spec import PrompterSpec, SpecialTokens
from metatemplate.values.frozen import dataclass
from metatemplate.values.prompt import Segment, SegmentLabel, Segments

GENERATE: SegmentLabel = ("assistant", "generate", True)
TEMPLATE: SegmentLabel = ("", "template", True)
RESPONSE = "### Response:\n"
"""The text before the answer in prompts of LazyLLM's single-turn prompter."""


def answer_marker(spec: PrompterSpec) -> str:
    """Return the text after which LazyLLM's ``get_response`` expects the answer; empty if there is no such text."""
    modern = DIALECTS[spec.dialect].modern
    if spec.form == "alpaca":
        return RESPONSE if modern else RESPONSE.rstrip("\n")
    if spec.form == "empty" or not spec.tokens.soa:
        return ""
    return spec.tokens.soa + ("\n" if modern else "")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of the request with the fields that a prompter writes."""

    number: int
    """The index of the message in the request."""
    role: str
    """``system``, ``developer``, ``user``, ``assistant`` or ``tool``."""
    content: str
    calls: Sequence[Mapping[str, Any]] = ()
    """The tool calls of an assistant's message, each as ``{"name": …, "arguments": {…}}``."""

    @property
    def origin(self) -> str:
        """The origin of the segments that are made from this message."""
        return f"messages[{self.number}]"

    @property
    def text(self) -> Segment:
        """The content of the message as a segment."""
        return Segment(self.content, self.role, self.origin, False)


def pair_segments(pairs: Iterable[tuple[str, str]], tokens: SpecialTokens) -> Iterator[Segment]:
    """Yield segments for the pairs of user and assistant texts that the template writes before every conversation."""
    for user, assistant in pairs:
        for text in (tokens.soh, user, tokens.eoh + tokens.soa, assistant, tokens.eoa):
            yield template_text(text)


def turn_segments(turns: Sequence[Turn], tokens: SpecialTokens, dialect: PrompterDialect) -> Iterator[Segment]:
    """Yield segments for the earlier turns of the request. Raises InvalidInput.

    Releases of LazyLLM before 0.2 accept only pairs of a user message and an assistant message. The bytes are the same
    in all releases.
    """
    roles = [turn.role for turn in turns]
    if not dialect.modern and (roles != ["user", "assistant"] * (len(turns) // 2) or any(t.calls for t in turns)):
        raise refusal("NotImplementedError", "earlier turns must be pairs of user and assistant")
    around = {
        "user": (tokens.soh, tokens.eoh),
        "assistant": (tokens.soa, tokens.eoa),
        "tool": (tokens.soe or "", tokens.eoe or ""),
    }
    for turn in turns:
        begin, end = around[turn.role]
        yield Segment(begin, turn.role, turn.origin, True)
        yield turn.text
        for call in turn.calls:
            for text, is_token in _call_pieces(call, tokens):
                yield Segment(text, turn.role, turn.origin, is_token)
        yield Segment(end, turn.role, turn.origin, True)


def _call_pieces(call: Mapping[str, Any], tokens: SpecialTokens) -> Iterator[tuple[str, bool]]:
    """Yield (text, is_token) for each piece of a tool call. ``is_token``: True for a text of the template."""
    yield (tokens.tool_start_token or "") + "\n", True
    if tokens.tool_args_token:
        yield str(call["name"]), False
        yield tokens.tool_args_token, True
        yield write_json5(call["arguments"]), False
    else:
        yield str(call), False
    yield (tokens.tool_end_token or "") + "\n", True


def assemble(
    form: str,
    tokens: SpecialTokens,
    dialect: PrompterDialect,
    *,
    system: Segments,
    user: Segments,
    tools: str,
    history: Sequence[Segment] = (),
    current: Sequence[Segment] = (),
    label: SegmentLabel = TEMPLATE,
    in_environment: bool = False,
    answer: Segment | None = None,
) -> Segments:
    """Return the whole prompt of a prompter of class ``alpaca`` or ``chat``.

    ``user``: the user part of the instruction, before the current turn. ``current``: the texts of the current turn, one
    per line; empty if the user message fills a slot. ``label``: the label of the tokens around the current turn.
    ``in_environment``: True if the current turn has results of tools. ``answer``: the beginning of the answer.
    """
    parts: tuple[Segment, ...]
    if form == "alpaca":
        parts = (
            template_text(f"{tokens.system}\n"),
            *system,
            template_text("\n"),
            Segment(tools, *TOOLS),
            template_text(dialect.tail),
            *user,
            Segment(RESPONSE, *GENERATE),
        )
    else:
        begin, end = tokens.soh, tokens.eoh
        if in_environment:
            begin, end = tokens.soe or begin, tokens.eoe or end
        lines = [segment for text in current for segment in (Segment("\n", *label), text)][1:]
        parts = (
            template_text(tokens.sos + tokens.system),
            *system,
            Segment(tools, *TOOLS),
            template_text(f"{tokens.eos}\n\n"),
            *history,
            Segment(f"\n{begin}\n", *label),
            *user,
            *lines,
            Segment(f"\n{end}", *label),
            Segment(f"{tokens.soa}\n", *GENERATE),
        )
    parts = parts if answer is None else (*parts, answer)
    return strip_leading(parts, "\n") if dialect.modern else parts
