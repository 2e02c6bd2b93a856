"""Where do two templates part? Each case rendered by both, and compared as what the model sees.

What the model sees is the text with its BOS, whoever writes that: a chat template writes it into its text and the text
is tokenized as it stands, ours says by ``bos`` who does (design 4.3). So the BOS that an engine adds is part of what is
compared, and nothing else is added, trimmed or normalized: texts are the same when their UTF-8 bytes are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.core.dialogue import Dialogue
from gateway.core.errors import GatewayError
from gateway.core.prompt import Prompt, PromptMetadata
from gateway.parity.cases import Case
from gateway.parity.causes import Difference, causes_of
from gateway.parity.sides import Side, side_of
from gateway.template.base import Template

Tokenize = Callable[[str], Sequence[int]]
"""Text → token ids, nothing added."""

Verdict = Literal["same", "differs", "refused by ours", "refused by the reference", "refused by both", "not compared"]

EQUAL: tuple[Verdict, ...] = ("same", "refused by both")
"""Both do the same thing."""
PARTED: tuple[Verdict, ...] = ("differs", "refused by ours", "refused by the reference")
"""They do not."""

UNKNOWN_BOS = "<BOS>"
"""Stands for a BOS that an engine adds when nobody knows its text."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """How the two texts fall into tokens."""

    ours: int
    """How many."""
    reference: int
    at: int | None
    """The first token that is another, counted from 0; None: the same tokens."""
    ours_id: int | None = None
    """The id there; None: the text has ended."""
    reference_id: int | None = None


@dataclass(frozen=True, slots=True)
class Rendering:
    """What one side made of a case."""

    text: str = ""
    """As the model sees it, BOS included."""
    refused: str = ""
    """Why there is no text; empty: there is one."""
    code: str = ""
    """The error's code when it was refused."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What became of one case."""

    case: Case
    verdict: Verdict
    ours: Rendering = Rendering()
    reference: Rendering = Rendering()
    at: int | None = None
    """With ``differs``: the bytes that both begin with, up to the first character that is another."""
    tokens: Tokens | None = None
    """Set when there is a tokenizer and both made a text."""
    causes: tuple[str, ...] = ()
    """Names of known causes, see ``causes.CAUSES``."""

    @property
    def parted(self) -> bool:
        """Do the two sides do different things?"""
        return self.verdict in PARTED


def compare(
    ours: Side | Template | Callable[[Dialogue], str],
    reference: Side | Template | Callable[[Dialogue], str],
    cases: Iterable[Case],
    *,
    bos_token: str = "",
    tokenize: Tokenize | None = None,
) -> tuple[CaseResult, ...]:
    """A result for each case, in their order. ``bos_token``: the text of the BOS that an engine adds.

    Raises ``UnsupportedParameter`` if one side makes messages instead of a text.
    """
    one, other = side_of(ours), side_of(reference)
    return tuple([_compared(case, one, other, bos_token, tokenize) for case in cases])


def _compared(case: Case, ours: Side, reference: Side, bos_token: str, tokenize: Tokenize | None) -> CaseResult:
    if case.whole and (ours.whole is None or reference.whole is None):
        return CaseResult(case, "not compared")
    made, known = _made(case, ours), _made(case, reference)
    bos = bos_token or _bos_text(made) or _bos_text(known) or UNKNOWN_BOS
    one, other = _seen(made, ours, bos), _seen(known, reference, bos)
    verdict, at = _verdict(one, other), None
    if verdict == "differs":
        at = len(one.text[: parting(one.text, other.text)].encode("utf-8", "surrogatepass"))
    tokens = None
    if tokenize is not None and not one.refused and not other.refused:
        tokens = _tokens(tokenize(one.text), tokenize(other.text))
    causes: tuple[str, ...] = ()
    if verdict in PARTED:
        rewrites = frozenset([notice.rule for notice in made.notices]) if isinstance(made, Prompt) else frozenset()
        causes = causes_of(
            Difference(case.dialogue, case.whole, one.text, other.text, one.code, other.code, bos, rewrites)
        )
    return CaseResult(case, verdict, one, other, at, tokens, causes)


def _made(case: Case, side: Side) -> Prompt | GatewayError:
    try:
        if case.whole and side.whole is not None:
            return Prompt(side.whole(case.dialogue), PromptMetadata(bos=side.bos))
        return side.render(case.dialogue)
    except GatewayError as error:
        return error


def _bos_text(made: Prompt | GatewayError) -> str:
    return made.bos_text if isinstance(made, Prompt) else ""


def _seen(made: Prompt | GatewayError, side: Side, bos: str) -> Rendering:
    if isinstance(made, GatewayError):
        return Rendering(refused=_reason(made), code=made.code)
    added = (made.bos == "engine" and side.adds_when_told) or (made.bos == "none" and side.adds_bos)
    return Rendering(bos + made.text if added else made.text)


def _reason(error: GatewayError) -> str:
    named = error.param and error.param not in error.message
    return f"{error.param}: {error.message}" if named else error.message


def _verdict(ours: Rendering, reference: Rendering) -> Verdict:
    if ours.refused or reference.refused:
        if ours.refused and reference.refused:
            return "refused by both"
        return "refused by ours" if ours.refused else "refused by the reference"
    return "same" if ours.text == reference.text else "differs"


def parting(one: str, other: str) -> int:
    """The number of characters that both begin with."""
    if other.startswith(one):
        return len(one)
    return next((at for at, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), len(other))


def _tokens(ours: Sequence[int], reference: Sequence[int]) -> Tokens:
    if list(ours) == list(reference):
        return Tokens(len(ours), len(reference), None)
    shorter = min(len(ours), len(reference))
    at = next((at for at in range(shorter) if ours[at] != reference[at]), shorter)
    return Tokens(
        len(ours),
        len(reference),
        at,
        ours[at] if at < len(ours) else None,
        reference[at] if at < len(reference) else None,
    )
