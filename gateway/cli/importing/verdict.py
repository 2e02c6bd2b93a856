"""Compares an imported template with the source's own prompts, over the matrix of ``gateway parity``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gateway.core.errors import ConfigError, Problem
from gateway.core.prompt import Prompt, PromptMetadata
from gateway.importer.draft import SUBSETS, Draft, Reference, has_system
from gateway.parity.cases import Case, matrix
from gateway.parity.causes import CAUSES
from gateway.parity.compare import CaseResult, compare
from gateway.parity.sides import Side
from gateway.template.base import Template

MAX_DIFFERENCES = 3
"""Differences shown one by one."""
CONTEXT = 24
"""Characters shown of either text from the first difference on."""


def verdict_of(template: Template, reference: Reference | None, draft: Draft) -> list[str]:
    """The verdict in lines. Raises ``ConfigError`` with the differences if the template is not exact."""
    if reference is None:
        return [f"Parity: not compared; the prompts of the examples were written by {draft.examples_by}."]
    metadata = PromptMetadata(bos=reference.bos)
    side = Side(lambda dialogue: Prompt(reference.render(dialogue), metadata), reference.whole, reference.bos)
    tokens = template.spec.jinja.special_tokens.values() if template.spec.jinja is not None else ()
    cases: list[Case] = []
    left_out: Counter[str] = Counter()
    for plain in matrix([text for text in tokens if text]):
        case = _with_system(plain, reference.default_system)
        if (name := _exclusion(case, reference)) is not None:
            left_out[name] += 1
        else:
            cases.append(case)
    results = compare(template, side, cases)
    open_results = [one for one in results if not one.case.whole]
    wrong = [one for one in open_results if one.verdict in ("differs", "refused by ours")]
    same = sum(one.verdict in ("same", "refused by both") for one in open_results)
    if wrong or not same:
        message = "\n  ".join(_failure(wrong, same, reference))
        raise ConfigError((Problem(draft.origin, 0, "", message),))
    return _success(results, same, left_out, reference)


def _with_system(case: Case, system: str) -> Case:
    """The case with the source's own system message in front if it has none."""
    if not system or has_system(case.dialogue):
        return case
    return replace(case, messages=({"role": "system", "content": system}, *case.messages))


def _exclusion(case: Case, reference: Reference) -> str | None:
    matching = (
        one.name for one in reference.excluded if not (case.whole and one.open_only) and one.matches(case.dialogue)
    )
    return next(matching, None)


def _success(results: Sequence[CaseResult], same: int, left_out: Counter[str], reference: Reference) -> list[str]:
    lines = [f"Parity: {same} of {same} conversations come out byte for byte as by {reference.name}."]
    if left_out:
        lines.append(f"Not compared: {'; '.join([f'{name} ({number})' for name, number in left_out.items()])}.")
    if reference.default_system:
        lines.append("Conversations without a system message were compared with the source's own in front.")
    if accepted := [one.case.name for one in results if one.verdict == "refused by the reference"]:
        lines.append(f"Refused by the source and accepted here: {', '.join(accepted)}.")
    if any(one.is_different for one in results if one.case.whole and one.verdict != "not compared"):
        lines.append("Complete conversations, as scored by perplexity, differ from the source's.")
    return lines


def _failure(wrong: list[CaseResult], same: int, reference: Reference) -> list[str]:
    names = ", ".join([one.case.name for one in wrong]) or "nothing could be compared"
    lines = [f"not exact: {same} conversations come out as by {reference.name}, and {len(wrong)} do not: {names}"]
    for one in wrong[:MAX_DIFFERENCES]:
        if one.verdict == "differs":
            ours, theirs = [
                repr(text.encode()[one.at :].decode(errors="replace")[:CONTEXT])
                for text in (one.ours.text, one.reference.text)
            ]
            lines.append(f"{one.case.name}: from byte {one.at} on {ours}, in the source {theirs}")
        else:
            lines.append(f"{one.case.name}: refused here: {one.ours.refused}")
    lines += [CAUSES[cause] for cause in dict.fromkeys([cause for one in wrong for cause in one.causes])]
    lines += [reference.hint] if reference.hint else []
    dialogues = [one.case.dialogue for one in wrong]
    words = [
        word
        for word, one in SUBSETS.items()
        if word != "system" and any(one.matches(dialogue) for dialogue in dialogues)
    ]
    if words and all(any(SUBSETS[word].matches(dialogue) for word in words) for dialogue in dialogues):
        options = " ".join([f"--without {word}" for word in words])
        lines.append(f"{options} leaves these conversations out of the comparison")
    return lines
