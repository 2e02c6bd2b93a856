"""The differences between two rows, in the order in which one may be the cause of the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

from gateway.evaluate.analysis.client_text import client_text
from gateway.evaluate.analysis.pairing import Parts, parts_of
from gateway.evaluate.analysis.rows import RowFacts, RunRow
from gateway.stream.loops import ENDED_BY_MODEL
from metatemplate.templates.registry import first_difference
from metatemplate.values.words import changes

Difference = Callable[[RunRow, RunRow], str]
"""Returns how two rows differ, as a text for people; empty if they do not differ, or if the facts are not recorded."""


def _dataset_row(a: RunRow, b: RunRow) -> str:
    if _differ(a.facts.asked, b.facts.asked):
        return ", ".join(kinds_of("dataset row", a, b))
    if _differ(a.facts.request, b.facts.request) and None in (a.facts.asked, b.facts.asked):
        return "the client asked something else: messages, examples, variables or tools"
    if _differ(a.facts.dataset_prompt, b.facts.dataset_prompt):
        return f"dataset prompt {a.facts.dataset_prompt or 'none'} → {b.facts.dataset_prompt or 'none'}"
    return ""


def _prompt(a: RunRow, b: RunRow) -> str:
    one, other = a.facts.prompt, b.facts.prompt
    if one is not None and other is not None and one != other:
        at = len(one[: first_difference(one, other)].encode(errors="surrogatepass"))
        return f"byte {at}{_named('template', a.facts.template, b.facts.template)}"
    if _differ(a.facts.prompt_sha256, b.facts.prompt_sha256):
        return f"the hash of the prompt{_named('template', a.facts.template, b.facts.template)}"
    return ""


def _prompt_ids(a: RunRow, b: RunRow) -> str:
    """The token ids. Who writes the BOS also changes them, if they are not recorded."""
    if _differ(a.facts.bos, b.facts.bos):
        return f"BOS {a.facts.bos} → {b.facts.bos}"
    return "the token ids of the prompt" if _differ(a.facts.prompt_ids, b.facts.prompt_ids) else ""


def _parameters(a: RunRow, b: RunRow) -> str:
    return _changes(*compared_parameters(a.facts, b.facts))


def compared_parameters(a: RowFacts, b: RowFacts) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """Return the parameters of two rows, without a ``max_tokens`` that the gateway set and no answer reached."""
    if not (a.default_limit and b.default_limit and a.params and b.params):
        return a.params, b.params
    one, other = ({name: params[name] for name in params if name != "max_tokens"} for params in (a.params, b.params))
    return one, other


def kinds_of(cause: str, a: RunRow, b: RunRow) -> list[str]:
    """Return the kinds of a difference between two rows, those of ``KINDS`` in their order; empty for other causes."""
    if cause == "parameters":
        one, other = compared_parameters(a.facts, b.facts)
        names = {name for name in {**(one or {}), **(other or {})} if (one or {}).get(name) != (other or {}).get(name)}
        found = {next((kind for kind, group in PARAMETERS.items() if name in group), OTHER) for name in names}
    elif cause == "dataset row" and a.facts.asked is not None and b.facts.asked is not None:
        found = _request_kinds(a.facts.asked, b.facts.asked)
    else:
        return []
    return [kind for kind in KINDS[cause] if kind in found]


PARAMETERS = {"max_tokens": ("max_tokens", "max_completion_tokens"), "stop": ("stop", "stop_token_ids")}
OTHER, OTHER_TEXT = "other parameters", "other text"
BEFORE, AFTER = "text before the question", "text after the question"
KINDS: Mapping[str, tuple[str, ...]] = {
    "dataset row": ("system text", BEFORE, AFTER, "white space", OTHER_TEXT, "tools"),
    "parameters": (*PARAMETERS, OTHER),
}
"""Name of a difference → its kinds, in their order."""


def _request_kinds(a: Mapping[str, Any], b: Mapping[str, Any]) -> set[str]:
    """Return the kinds of differences between two requests.

    The question is what both texts have before the last parts that only one of them has.
    """
    systems, texts = [_texts_of(one, system=True) for one in (a, b)], [_texts_of(one, system=False) for one in (a, b)]
    found = {"tools"} if a.get("tools") != b.get("tools") else set()
    if systems[0] != systems[1]:
        found.add("system text" if systems[0].split() != systems[1].split() else "white space")
    one, other = [parts_of(text) for text in texts]
    head, head_b = _up_to_common(one, other), _up_to_common(other, one)
    ends = zip(reversed(head), reversed(head_b), strict=False)
    question = [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], ends)]
    if question and head[: -len(question)] != head_b[: -len(question)]:
        found.add(BEFORE)
    if question and one[len(head) :] != other[len(head_b) :]:
        found.add(AFTER)
    if any((part in texts[0]) is not (part in texts[1]) for part in question):
        found.add("white space")
    if texts[0] != texts[1] and found.isdisjoint((BEFORE, AFTER, "white space")):
        found.add("white space" if texts[0].split() == texts[1].split() else OTHER_TEXT)
    return found or {OTHER_TEXT}


def _up_to_common(parts: Parts, other: Parts) -> Parts:
    """Return the parts of a text without the last ones that the other text lacks."""
    known = {*other}
    return parts[: max([at for at, part in enumerate(parts, 1) if part in known], default=0)]


def _texts_of(asked: Mapping[str, Any], *, system: bool) -> str:
    """Return the texts of the system messages of a request, or all others."""
    messages = [one for one in asked.get("messages") or () if (one.get("role") in ("system", "developer")) is system]
    return client_text({"messages": messages} if system else {**asked, "messages": messages})


def _route(a: RunRow, b: RunRow) -> str:
    settings = _changes(a.facts.settings, b.facts.settings)
    return ", ".join(filter(None, [_changes(a.facts.route, b.facts.route), settings and f"target {settings}"]))


def _cut(a: RunRow, b: RunRow) -> str:
    """The same text up to the end of the shorter one, which the model did not end; or the same text with another end.

    An end that the model chose is a sampled token.
    """
    if (texts := _texts(a, b)) is None or not _differ(_reasons(a), _reasons(b)):
        return ""
    longer, shorter = sorted(texts, key=len, reverse=True)
    ended = _reasons(a if texts[0] == shorter else b) or ()
    is_cut = texts[0] == texts[1] or (longer.startswith(shorter) and not ENDED_BY_MODEL.issuperset(ended))
    return f"{', '.join(a.facts.ends or ())} → {', '.join(b.facts.ends or ())}" if is_cut else ""


def _reasons(row: RunRow) -> tuple[str, ...] | None:
    """Return the finish reason of each choice. Only recordings know more about an end."""
    return None if row.facts.ends is None else tuple([end.partition(" ")[0] for end in row.facts.ends])


def _reading(a: RunRow, b: RunRow) -> str:
    same = a.facts.raw is not None and a.facts.raw == b.facts.raw
    is_read = same and _differ(a.facts.delivered, b.facts.delivered)
    return "the same text of the engine was read in another way" if is_read else ""


def _sampled(a: RunRow, b: RunRow) -> str:
    texts = _texts(a, b)
    if texts is None or texts[0] == texts[1] or _cut(a, b):
        return ""
    return f"character {first_difference(*texts)} of the answer"


SAMPLED = "sampled tokens"
DIFFERENCES: Mapping[str, Difference] = {
    "dataset row": _dataset_row,
    "prompt": _prompt,
    "prompt ids": _prompt_ids,
    "parameters": _parameters,
    "route": _route,
    "cut": _cut,
    "reading": _reading,
    SAMPLED: _sampled,
}
"""Name of a difference → the function that finds it, in the order of the causes."""
NOT_RECORDED = "not recorded"
"""The cause of rows that differ, and for which no recorded fact differs."""


def differences_of(a: RunRow, b: RunRow) -> dict[str, str]:
    """Return all differences between two rows, the first one first."""
    return {name: text for name, find in DIFFERENCES.items() if (text := find(a, b))}


def _differ(a: object, b: object) -> bool:
    """Return whether two facts differ. A fact that is not recorded differs from nothing."""
    return a is not None and b is not None and a != b


def _named(name: str, a: str | None, b: str | None) -> str:
    return f", {name} {a} → {b}" if _differ(a, b) else ""


def _changes(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> str:
    return "" if a is None or b is None else ", ".join(changes(a, b))


def _texts(a: RunRow, b: RunRow) -> tuple[str, str] | None:
    """Return what both targets wrote; without a recording of both, what the clients received. None: not recorded."""
    if a.facts.raw is not None and b.facts.raw is not None:
        return a.facts.raw, b.facts.raw
    if not a.answers or not b.answers:
        return None
    one, other = ("".join([answer.reasoning + answer.text for answer in row.answers]) for row in (a, b))
    return one, other
