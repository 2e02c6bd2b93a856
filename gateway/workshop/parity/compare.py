"""Compares two templates over a list of cases, by the text that the model sees.

This text includes the BOS. A chat template writes the BOS into its text, which is tokenized without special tokens.
Our templates declare with ``bos`` where the BOS comes from. Nothing else is added, trimmed or normalized. Two texts
are the same if their UTF-8 bytes are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.core.errors import GatewayError, as_gateway_error
from gateway.workshop.parity.cases import Case
from gateway.workshop.parity.causes import causes_of
from gateway.workshop.parity.sides import Side, SideResult, side_of
from metatemplate.errors import MetaTemplateError
from metatemplate.templates.base import Template
from metatemplate.templates.registry import first_difference
from metatemplate.values.prompt import Prompt

Tokenize = Callable[[str], Sequence[int]]
"""A function that returns the token ids of a text, without added special tokens."""

Verdict = Literal["same", "differs", "refused by ours", "refused by the reference", "refused by both", "not compared"]

EQUAL: tuple[Verdict, ...] = ("same", "refused by both")
DIFFERENT: tuple[Verdict, ...] = ("differs", "refused by ours", "refused by the reference")

UNKNOWN_BOS = "<BOS>"
"""The placeholder for a BOS that the engine adds, if the text of the BOS is not known."""


@dataclass(frozen=True, slots=True)
class TokenComparison:
    """The comparison of the tokens of both texts."""

    ours: int
    """The number of tokens in our text."""
    reference: int
    at: int | None
    """The position of the first different token, counted from 0; None if all tokens are the same."""
    ours_id: int | None = None
    """The id of our token at position ``at``; None if our text has no token at this position."""
    reference_id: int | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of the comparison for one case."""

    case: Case
    verdict: Verdict
    ours: SideResult
    reference: SideResult
    at: int | None = None
    """The number of bytes before the first different character, if the verdict is ``differs``."""
    tokens: TokenComparison | None = None
    """The comparison of the tokens; None if there is no tokenizer, or if a side refused the case."""
    causes: tuple[str, ...] = ()
    """The names of known causes of the difference, from ``causes.CAUSES``."""

    @property
    def is_different(self) -> bool:
        """Whether the two sides have different results."""
        return self.verdict in DIFFERENT


def compare(
    ours: Side | Template,
    reference: Side | Template,
    cases: Iterable[Case],
    *,
    bos_token: str = "",
    tokenize: Tokenize | None = None,
) -> tuple[CaseResult, ...]:
    """Return the results in the order of the cases. ``bos_token``: the text of the BOS that an engine adds.

    Raises UnsupportedParameter if one side makes messages instead of a text.
    """
    our_side, reference_side = side_of(ours), side_of(reference)
    return tuple([_compare_case(case, our_side, reference_side, bos_token, tokenize) for case in cases])


def _compare_case(case: Case, ours: Side, reference: Side, bos_token: str, tokenize: Tokenize | None) -> CaseResult:
    if case.whole and not (ours.writes_whole and reference.writes_whole):
        return CaseResult(case, "not compared", SideResult(), SideResult())
    prompts = _render(case, ours), _render(case, reference)
    written = [prompt.metadata.bos_text for prompt in prompts if isinstance(prompt, Prompt)]
    bos = next(filter(None, [bos_token, *written]), UNKNOWN_BOS)
    one, other = _result(prompts[0], ours, bos), _result(prompts[1], reference, bos)
    verdict = _verdict(one, other)
    at, tokens = None, None
    causes: tuple[str, ...] = ()
    if verdict == "differs":
        at = len(one.text[: first_difference(one.text, other.text)].encode("utf-8", "surrogatepass"))
    if tokenize is not None and not one.refused and not other.refused:
        tokens = _compare_tokens(tokenize(one.text), tokenize(other.text))
    if verdict in DIFFERENT:
        notices = prompts[0].metadata.notices if isinstance(prompts[0], Prompt) else ()
        causes = causes_of(case, one, other, bos=bos, notices=[notice.rule for notice in notices])
    return CaseResult(case, verdict, one, other, at, tokens, causes)


def _render(case: Case, side: Side) -> Prompt | GatewayError:
    try:
        return side.render(case.dialogue)
    except (GatewayError, MetaTemplateError) as error:
        return as_gateway_error(error)


def _result(prompt: Prompt | GatewayError, side: Side, bos: str) -> SideResult:
    if isinstance(prompt, GatewayError):
        needs_param = prompt.param and prompt.param not in prompt.message
        reason = f"{prompt.param}: {prompt.message}" if needs_param else prompt.message
        return SideResult(refused=reason, code=prompt.code)
    is_added = (prompt.metadata.bos == "engine" and side.adds_bos_on_request) or (
        prompt.metadata.bos == "none" and side.adds_bos
    )
    return SideResult(bos + prompt.text if is_added else prompt.text)


def _verdict(ours: SideResult, reference: SideResult) -> Verdict:
    if ours.refused and reference.refused:
        return "refused by both"
    if ours.refused or reference.refused:
        return "refused by ours" if ours.refused else "refused by the reference"
    return "same" if ours.text == reference.text else "differs"


def _compare_tokens(ours: Sequence[int], reference: Sequence[int]) -> TokenComparison:
    lengths = len(ours), len(reference)
    at = next((at for at in range(min(lengths)) if ours[at] != reference[at]), min(lengths))
    if at == max(lengths):
        return TokenComparison(*lengths, None)
    ids = [tokens[at] if at < len(tokens) else None for tokens in (ours, reference)]
    return TokenComparison(*lengths, at, *ids)
