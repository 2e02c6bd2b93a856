"""Known causes of a difference between two prompts, each with a sentence of advice.

A cause is reported only if the texts prove it: removing or adding it must give the other text, or a part of it. A
difference may have several causes or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gateway.core.dialogue import Dialogue

MAX_BLANK = 8
"""Characters of white space at the end that count as one cause; more are a text of their own."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Two different results for one conversation."""

    dialogue: Dialogue
    whole: bool
    """True: the conversation is complete, no turn is left open."""
    ours: str
    """The text that the model sees; empty if the dialogue was refused."""
    reference: str
    ours_code: str
    """The error's code if the dialogue was refused, else empty."""
    reference_code: str
    bos: str
    notices: frozenset[str] = frozenset()
    """The rules of our prompt's notices."""


Holds = Callable[[Difference], bool]
CompareTexts = Callable[[str, str, Difference], bool]


@dataclass(frozen=True, slots=True)
class Cause:
    """A known cause."""

    advice: str
    holds: Holds


def causes_of(difference: Difference) -> tuple[str, ...]:
    """The names of all causes of a difference."""
    return tuple([name for name, cause in CAUSES.items() if cause.holds(difference)])


# ---------------------------------------------------------------- the texts that are compared


def _count_bos(text: str, bos: str) -> int:
    """The number of BOS tokens at the start of a text."""
    number = 0
    while bos and text.startswith(bos, number * len(bos)):
        number += 1
    return number


def _bos(holds: Callable[[int, int], bool]) -> Holds:
    """A cause seen in the numbers of BOS of ours and of the reference."""
    return lambda found: (
        _both_rendered(found) and holds(_count_bos(found.ours, found.bos), _count_bos(found.reference, found.bos))
    )


def _texts(holds: CompareTexts) -> Holds:
    """A cause seen in the texts of ours and of the reference, without BOS."""
    return lambda found: (
        _both_rendered(found) and holds(_without_bos(found.ours, found), _without_bos(found.reference, found), found)
    )


def _swapped(holds: CompareTexts) -> Holds:
    """``_texts`` with the reference first."""
    return _texts(lambda ours, reference, found: holds(reference, ours, found))


def _both_rendered(found: Difference) -> bool:
    return not found.ours_code and not found.reference_code


def _without_bos(text: str, found: Difference) -> str:
    return text[_count_bos(text, found.bos) * len(found.bos) :]


# ---------------------------------------------------------------- a text that only one side has


def _has_more_system(shorter: str, longer: str, found: Difference) -> bool:
    """True if the longer text has one more piece before the first message, and the request has no system message."""
    messages = found.dialogue.messages
    if found.dialogue.options.tools or not messages or messages[0].role in ("system", "developer"):
        return False
    first = messages[0].text.strip()
    for text in dict.fromkeys((shorter, _stripped(shorter, found.dialogue))):  # the longer text may be trimmed too
        piece = _inserted(text, longer)
        # Equal markers on both sides of the piece may move it a little; it must be before the first words.
        if piece is not None and any(map(str.isalpha, piece[1])) and first and piece[0] <= text.find(first):
            return True
    return False


def _inserted(shorter: str, longer: str) -> tuple[int, str] | None:
    """(place, text) of the one piece that the longer text has more; None if it is not one piece."""
    more = len(longer) - len(shorter)
    if more <= 0:
        return None
    at = 0
    while at < len(shorter) and shorter[at] == longer[at]:
        at += 1
    return (at, longer[at : at + more]) if longer[at + more :] == shorter[at:] else None


def _ends_early(shorter: str, longer: str, found: Difference) -> bool:
    """True if the longer text continues the shorter one with more than white space."""
    if found.whole or found.dialogue.options.continue_final or not longer.startswith(shorter):
        return False
    return bool(longer[len(shorter) :].strip())


# ---------------------------------------------------------------- white space


def _differs_at_end(ours: str, reference: str, _: Difference) -> bool:
    same = ours.rstrip() == reference.rstrip()
    return ours != reference and same and abs(len(ours) - len(reference)) <= MAX_BLANK


def _differs_in_white_space(ours: str, reference: str, found: Difference) -> bool:
    if ours == reference or "".join(ours.split()) != "".join(reference.split()):
        return False
    trimmed = _is_trimmed(ours, reference, found) or _is_trimmed(reference, ours, found)
    return not (trimmed or _differs_at_end(ours, reference, found))


def _spaced_texts(dialogue: Dialogue) -> Iterator[str]:
    """Messages with white space at their ends, longest first, so that no text is found inside another."""
    texts = {message.text for message in dialogue.messages}
    yield from sorted([text for text in texts if text != text.strip()], key=lambda text: (-len(text), text))


def _stripped(text: str, dialogue: Dialogue) -> str:
    """A prompt with every message trimmed."""
    for spaced in _spaced_texts(dialogue):
        text = text.replace(spaced, spaced.strip())
    return text


def _is_trimmed(full: str, trimmed: str, found: Difference) -> bool:
    """True if ``full`` with trimmed messages is ``trimmed``, or only ``full`` has a message untrimmed."""
    spaced = list(_spaced_texts(found.dialogue))
    if spaced and _stripped(full, found.dialogue) == trimmed:
        return True
    return any(text in full and text not in trimmed and text.strip() in trimmed for text in spaced if text.strip())


# ---------------------------------------------------------------- refusals


def _refuses_tools(found: Difference) -> bool:
    calls = any(message.raw.get("tool_calls") for message in found.dialogue.messages)
    return found.ours_code == "unsupported_parameter" and bool(found.dialogue.options.tools or calls)


CAUSES: Mapping[str, Cause] = {
    "missing_bos": Cause(
        "the reference begins with a BOS and ours has none: write `bos: engine` if the engine adds it, "
        "or write it in `begin` with `bos: text`",
        _bos(lambda ours, reference: ours == 0 < reference),
    ),
    "double_bos": Cause(
        "ours has the BOS twice, once in the text and once from the engine: remove it from the text, "
        "or write `bos: text` so that the engine adds none",
        _bos(lambda ours, reference: ours > max(1, reference)),
    ),
    "added_bos": Cause(
        "ours begins with a BOS and the reference has none: write `bos: none`, or remove it from the text",
        _bos(lambda ours, reference: ours == 1 and reference == 0),
    ),
    "reference_doubles_bos": Cause(
        "the reference itself has the BOS twice: check the prompts of the model's training before you follow it",
        _bos(lambda ours, reference: reference > max(1, ours)),
    ),
    "default_system": Cause(
        "the reference adds a system turn that is not in the request: if the model was trained with it, let clients "
        "send it, or write it into `begin`",
        _texts(_has_more_system),
    ),
    "own_system": Cause(
        "ours adds a text before the first message that the reference does not have: remove it from `begin`",
        _swapped(_has_more_system),
    ),
    "trimmed_content": Cause(
        "the reference trims white space around messages, and ours keeps every byte; only `kind: jinja` can trim",
        _texts(_is_trimmed),
    ),
    "kept_white_space": Cause(
        "ours trims white space around messages, and the reference keeps it",
        _swapped(_is_trimmed),
    ),
    "missing_opening": Cause(
        "ours ends before the reference does: the beginning of the answer is missing; "
        "write it in `begin` of the role with `generate: true`",
        _texts(_ends_early),
    ),
    "longer_opening": Cause(
        "ours has more text where the reference ends: shorten the `begin` of the role with `generate: true`",
        _swapped(_ends_early),
    ),
    "white_space_at_end": Cause(
        "only the white space at the very end is different: compare the last `end` or `begin` of the template, "
        "where a space or a line break is easily lost or doubled",
        _texts(_differs_at_end),
    ),
    "white_space": Cause(
        "only white space is different: compare the spaces and line breaks in `begin` and `end` of the roles",
        _texts(_differs_in_white_space),
    ),
    "tools_not_declared": Cause(
        "ours takes no tools and the reference writes them: declare `tools` in the template (docs/tools.md), "
        "or ignore this if no request brings tools",
        _refuses_tools,
    ),
    "role_missing": Cause(
        "ours has no role for messages that the reference writes: add it to `reserved_roles`, or map it under `roles`",
        lambda found: found.ours_code == "role_not_supported",
    ),
    "fallback_role": Cause(
        "ours has no SYSTEM role, so another one writes the system message: "
        "add SYSTEM to `reserved_roles`, with the texts of the reference",
        lambda found: _both_rendered(found) and "fallback_role" in found.notices,
    ),
    "stricter_reference": Cause(
        "the reference refuses a conversation that ours takes: the model was not trained on such a conversation, "
        "so expect worse answers",
        lambda found: found.reference_code == "invalid_value",
    ),
}
"""In the order in which they are reported."""
