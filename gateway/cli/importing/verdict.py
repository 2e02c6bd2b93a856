"""Does an imported template make the source's own prompts? The verdict over the matrix of ``gateway parity``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from gateway.core.prompt import Prompt, PromptMetadata
from gateway.importer.draft import SUBSETS, Draft, Reference, has_system
from gateway.parity.cases import Case, matrix
from gateway.parity.causes import CAUSES
from gateway.parity.compare import CaseResult, compare
from gateway.parity.sides import Side
from gateway.template.base import Template

SHOWN = 3
"""Differences told one by one."""
AROUND = 24
"""Characters shown of where two texts part."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the comparison says."""

    exact: bool
    lines: tuple[str, ...]


def judge(template: Template, reference: Reference | None, draft: Draft) -> Verdict:
    """Compare both over the matrix. Without a reference the verdict says so, and is no obstacle."""
    if reference is None:
        return Verdict(
            True, (f"Parity: not compared; the prompts of the examples were written by {draft.stands_for}.",)
        )
    spec = template.spec
    tokens = [text for text in spec.jinja.special_tokens.values() if text] if spec.jinja is not None else []
    asked: list[Case] = []
    left_out: Counter[str] = Counter()
    for plain in matrix(tokens):
        case = _led(plain, reference.default_system)
        why = _excluded(case, reference)
        if why:
            left_out[why] += 1
        else:
            asked.append(case)
    side = Side(lambda dialogue: Prompt(reference.render(dialogue)), reference.whole, reference.bos)
    results = compare(template, side if reference.bos == "none" else _with_bos(side, reference), asked)
    open_ones = [one for one in results if not one.case.whole]
    wrong = [one for one in open_ones if one.verdict in ("differs", "refused by ours")]
    same = sum(one.verdict in ("same", "refused by both") for one in open_ones)
    if wrong or not same:
        return Verdict(False, tuple(_failure(wrong, same, reference)))
    return Verdict(True, tuple(_success(results, same, left_out, reference)))


def _led(case: Case, system: str) -> Case:
    """The case as the source means it: with its own system message in front if there is none."""
    if not system or has_system(case.dialogue):
        return case
    return replace(case, messages=({"role": "system", "content": system}, *case.messages))


def _with_bos(side: Side, reference: Reference) -> Side:
    """The reference's texts as the same engine sees them."""
    return Side(
        lambda dialogue: Prompt(reference.render(dialogue), PromptMetadata(bos=reference.bos)),
        side.whole,
        reference.bos,
    )


def _excluded(case: Case, reference: Reference) -> str:
    for exclusion in reference.excluded:
        if not (case.whole and exclusion.opens) and exclusion.holds(case.dialogue):
            return exclusion.why
    return ""


def _success(results: tuple[CaseResult, ...], same: int, left_out: Counter[str], reference: Reference) -> list[str]:
    lines = [f"Parity: {same} of {same} conversations come out byte for byte as by {reference.title}."]
    if left_out:
        told = "; ".join([f"{why} ({number})" for why, number in left_out.items()])
        lines.append(f"Not compared: {told}.")
    if reference.default_system:
        lines.append("Conversations without a system message were compared with the source's own in front.")
    taken = [one.case.name for one in results if one.verdict == "refused by the reference"]
    if taken:
        lines.append(f"Refused by the source and taken here: {', '.join(taken)}.")
    whole = [one for one in results if one.case.whole and one.verdict != "not compared"]
    if any(one.parted for one in whole):
        lines.append("Complete conversations, as scored by perplexity, come out otherwise than the source's.")
    return lines


def _failure(wrong: list[CaseResult], same: int, reference: Reference) -> list[str]:
    names = ", ".join([one.case.name for one in wrong]) or "nothing could be compared"
    lines = [f"not exact: {same} conversations come out as by {reference.title}, and {len(wrong)} do not: {names}"]
    for one in wrong[:SHOWN]:
        if one.verdict == "differs" and one.at is not None:
            ours, theirs = [side.text.encode()[one.at :].decode(errors="replace") for side in (one.ours, one.reference)]
            lines.append(
                f"{one.case.name}: from byte {one.at} on {ours[:AROUND]!r}, and the source {theirs[:AROUND]!r}"
            )
        elif one.verdict == "refused by ours":
            lines.append(f"{one.case.name}: refused here: {one.ours.refused}")
    causes = dict.fromkeys([cause for one in wrong for cause in one.causes])
    lines += [CAUSES[cause].says for cause in causes]
    lines += [reference.hint] if reference.hint else []
    words = _leaving_out(wrong)
    return [*lines, f"{words} leaves these conversations out of the comparison"] if words else lines


def _leaving_out(wrong: list[CaseResult]) -> str:
    """The words of a command line that would leave all of these out; empty if there are none."""
    words = [
        word for word, one in SUBSETS.items()
        if word != "system" and any(one.holds(result.case.dialogue) for result in wrong)
    ]  # fmt: skip
    left = [result for result in wrong if not any(SUBSETS[word].holds(result.case.dialogue) for word in words)]
    return "" if left else " ".join([f"--without {word}" for word in words])
