"""Why do two templates part? The differences that have a known cause, each with a sentence that says what to do.

A cause is told only where the texts prove it: taking it away, or putting it in, must give the other text or a part of
it. A difference may have several causes, and one that has none is shown all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gateway.core.dialogue import Dialogue

MOST_BLANK = 8
"""Characters of white space at an end that count as one cause; more are a text of their own."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Two renderings of one conversation that are not the same."""

    dialogue: Dialogue
    whole: bool
    """No turn was to be left open."""
    ours: str
    """As the model sees it; empty when it was refused."""
    reference: str
    ours_code: str
    """The error's code where it was refused, else empty."""
    reference_code: str
    bos: str
    rewrites: frozenset[str] = frozenset()
    """The rules of the notices that ours gave."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What may be the matter, how it is seen, and what to do."""

    says: str
    holds: Callable[[Difference], bool]


def causes_of(found: Difference) -> tuple[str, ...]:
    """The names of all causes that can be seen in a difference."""
    return tuple([name for name, cause in CAUSES.items() if cause.holds(found)])


# ---------------------------------------------------------------- the BOS


def _begins(text: str, bos: str) -> int:
    """How many BOS a text begins with."""
    number = 0
    while bos and text.startswith(bos, number * len(bos)):
        number += 1
    return number


def _bos_is(ours: Callable[[int, int], bool]) -> Callable[[Difference], bool]:
    """A cause that compares how many BOS each text begins with."""

    def holds(found: Difference) -> bool:
        return _both(found) and ours(_begins(found.ours, found.bos), _begins(found.reference, found.bos))

    return holds


def _both(found: Difference) -> bool:
    return not found.ours_code and not found.reference_code


def _without_bos(found: Difference) -> tuple[str, str]:
    """Both texts without any BOS in front, so that other causes are seen beside a missing one."""
    return _bare(found.ours, found.bos), _bare(found.reference, found.bos)


def _bare(text: str, bos: str) -> str:
    return text[_begins(text, bos) * len(bos) :]


# ---------------------------------------------------------------- what one has more than the other


def _inserted(shorter: str, longer: str) -> tuple[int, str] | None:
    """(place, text) of the one piece that the longer text has more; None if it is not one piece."""
    more = len(longer) - len(shorter)
    if more <= 0:
        return None
    at = 0
    while at < len(shorter) and shorter[at] == longer[at]:
        at += 1
    return (at, longer[at : at + more]) if longer[at + more :] == shorter[at:] else None


def _adds_system(shorter: str, longer: str, dialogue: Dialogue) -> bool:
    """Has the longer text a piece before the first message, though nobody sent a system message or tools?"""
    if dialogue.tools or not dialogue.messages or dialogue.messages[0].role in ("system", "developer"):
        return False
    first = dialogue.messages[0].text.strip()
    for text in dict.fromkeys((shorter, _stripped(shorter, dialogue))):  # it may trim what was said as well
        found = _inserted(text, longer)
        # Equal markers on both sides of the piece may move it a little; it must lie before the first words.
        if found is not None and any(map(str.isalpha, found[1])) and first and found[0] <= text.find(first):
            return True
    return False


def _default_system(found: Difference) -> bool:
    ours, reference = _without_bos(found)
    return _both(found) and _adds_system(ours, reference, found.dialogue)


def _own_system(found: Difference) -> bool:
    ours, reference = _without_bos(found)
    return _both(found) and _adds_system(reference, ours, found.dialogue)


def _no_opening(found: Difference) -> bool:
    ours, reference = _without_bos(found)
    return _both(found) and _opens(found, ours, reference)


def _too_much_opening(found: Difference) -> bool:
    ours, reference = _without_bos(found)
    return _both(found) and _opens(found, reference, ours)


def _opens(found: Difference, shorter: str, longer: str) -> bool:
    """Does the longer text go on where the shorter one ends, with more than white space?"""
    if found.whole or found.dialogue.continue_final:
        return False
    return len(longer) > len(shorter) and longer.startswith(shorter) and bool(longer[len(shorter) :].strip())


# ---------------------------------------------------------------- white space


def _blank_end(found: Difference) -> bool:
    ours, reference = _without_bos(found)
    stripped = ours.rstrip() == reference.rstrip()
    return _both(found) and ours != reference and stripped and abs(len(ours) - len(reference)) <= MOST_BLANK


def _blanks_only(found: Difference) -> bool:
    ours, reference = _without_bos(found)
    if not _both(found) or ours == reference or _blank_end(found) or _trims(found) or _keeps(found):
        return False
    return "".join(ours.split()) == "".join(reference.split())


def _spaced(dialogue: Dialogue) -> Iterator[str]:
    """What was said with blanks at its ends, longest first, so that no text is looked for inside another."""
    said = {message.text for message in dialogue.messages}
    yield from sorted([text for text in said if text != text.strip()], key=lambda text: (-len(text), text))


def _stripped(text: str, dialogue: Dialogue) -> str:
    """A text with everything that was said trimmed."""
    for said in _spaced(dialogue):
        text = text.replace(said, said.strip())
    return text


def _trimmed(full: str, trimmed: str, dialogue: Dialogue) -> bool:
    """Does ``full`` become ``trimmed`` when what was said is trimmed, or does only ``full`` hold it untrimmed?"""
    spaced = list(_spaced(dialogue))
    if spaced and _stripped(full, dialogue) == trimmed:
        return True
    return any(text in full and text not in trimmed and text.strip() in trimmed for text in spaced if text.strip())


def _trims(found: Difference) -> bool:
    ours, reference = _without_bos(found)
    return _both(found) and _trimmed(ours, reference, found.dialogue)


def _keeps(found: Difference) -> bool:
    ours, reference = _without_bos(found)
    return _both(found) and _trimmed(reference, ours, found.dialogue)


# ---------------------------------------------------------------- refusals


def _no_tools(found: Difference) -> bool:
    calls = any(message.raw.get("tool_calls") for message in found.dialogue.messages)
    return found.ours_code == "unsupported_parameter" and bool(found.dialogue.tools or calls)


def _no_role(found: Difference) -> bool:
    return found.ours_code == "role_not_supported"


def _falls_back(found: Difference) -> bool:
    return _both(found) and "fallback_role" in found.rewrites


def _demanding(found: Difference) -> bool:
    return found.reference_code == "invalid_value"


CAUSES: Mapping[str, Cause] = {
    "missing_bos": Cause(
        "the reference begins with a BOS and ours has none: write `bos: engine` if the engine adds it, "
        "or write it in `begin` with `bos: text`",
        _bos_is(lambda ours, reference: ours < reference and ours == 0),
    ),
    "double_bos": Cause(
        "ours has the BOS twice, once in the text and once from the engine: take it out of the text, "
        "or write `bos: text` so that the engine adds none",
        _bos_is(lambda ours, reference: ours > 1 and ours > reference),
    ),
    "added_bos": Cause(
        "ours begins with a BOS and the reference has none: write `bos: none`, or take it out of the text",
        _bos_is(lambda ours, reference: ours == 1 and reference == 0),
    ),
    "reference_doubles_bos": Cause(
        "the reference itself has the BOS twice: look at what the model was trained on before following it",
        _bos_is(lambda ours, reference: reference > 1 and reference > ours),
    ),
    "default_system": Cause(
        "the reference adds a system turn that nobody sent: if the model was trained with it, let clients send it, "
        "or write it into `begin`",
        _default_system,
    ),
    "own_system": Cause(
        "ours adds a text before the first message that the reference does not have: take it out of `begin`",
        _own_system,
    ),
    "trimmed_content": Cause(
        "the reference trims white space around what was said, and ours keeps every byte of it; "
        "only `kind: jinja` can repeat that",
        _trims,
    ),
    "kept_white_space": Cause(
        "ours trims white space around what was said, and the reference keeps it",
        _keeps,
    ),
    "missing_opening": Cause(
        "ours ends before the reference does: the beginning of the answer is missing; "
        "write it in `begin` of the role with `generate: true`",
        _no_opening,
    ),
    "longer_opening": Cause(
        "ours goes on where the reference ends: the `begin` of the role with `generate: true` says too much",
        _too_much_opening,
    ),
    "white_space_at_end": Cause(
        "the texts part in white space at their very end only: compare the last `end` or `begin` of the template, "
        "a blank or a line break there is easily lost or doubled",
        _blank_end,
    ),
    "white_space": Cause(
        "the texts part in white space only: compare the blanks and line breaks in `begin` and `end` of the roles",
        _blanks_only,
    ),
    "tools_not_declared": Cause(
        "ours takes no tools and the reference writes them: declare `tools` in the template (docs/tools.md), "
        "or leave tools to requests that never come",
        _no_tools,
    ),
    "role_missing": Cause(
        "ours has no role for a speaker that the reference knows: add it to `reserved_roles`, or map it under `roles`",
        _no_role,
    ),
    "fallback_role": Cause(
        "ours has no SYSTEM role, so another one speaks the system message: "
        "add SYSTEM to `reserved_roles`, as the reference writes it",
        _falls_back,
    ),
    "stricter_reference": Cause(
        "the reference refuses a conversation that ours takes: the model never saw such a one, "
        "so ours answers with a prompt it was not trained on",
        _demanding,
    ),
}
"""In the order in which they are told."""
