"""Known causes of a difference between two prompts, each with a sentence of advice.

A cause is reported only if the texts, error codes or notices prove it, such as a BOS at the start of only one text.
A difference may have several known causes or none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gateway.workshop.parity.cases import Case
from gateway.workshop.parity.sides import SideResult
from metatemplate.templates.registry import first_difference
from metatemplate.values.dialogue import SYSTEM_ROLES, Dialogue

MAX_BLANK = 8
"""The largest difference in trailing white space, in characters, that gets the cause ``white_space_at_end``."""

CAUSES: Mapping[str, str] = {
    "missing_bos": (
        "the reference's prompt begins with a BOS and our prompt does not: write `bos: engine` if the engine adds "
        "the BOS; otherwise write `bos: text`, and write the BOS in `begin`"
    ),
    "double_bos": (
        "our prompt has the BOS twice, once in the text and once from the engine: remove the BOS from the text, "
        "or write `bos: text` so that the engine adds no BOS"
    ),
    "added_bos": (
        "our prompt begins with a BOS and the reference's prompt does not: write `bos: none`, "
        "or remove the BOS from the text"
    ),
    "reference_doubles_bos": (
        "the reference's prompt has the BOS twice: check whether the model was trained with two BOS tokens"
    ),
    "default_system": (
        "the reference adds a system turn that is not in the request: if the model was trained with this turn, "
        "write the turn in `begin`, or let clients send the system message"
    ),
    "own_system": (
        "our prompt has a text before the first message, and the reference's prompt does not: "
        "remove the text from `begin`"
    ),
    "trimmed_content": (
        "the reference trims white space around messages, and our template keeps it; only `kind: jinja` can trim"
    ),
    "kept_white_space": "our template trims white space around messages, and the reference keeps it",
    "missing_opening": (
        "our prompt lacks the text at the end of the reference's prompt, where the answer begins: "
        "write this text in `begin` of the role with `generate: true`"
    ),
    "longer_opening": (
        "our prompt continues after the end of the reference's prompt: "
        "shorten the `begin` of the role with `generate: true`"
    ),
    "white_space_at_end": (
        "the prompts differ only in white space at the very end: check the last `end` or `begin` of our template"
    ),
    "white_space": (
        "the prompts differ only in white space: check the spaces and line breaks in `begin` and `end` of the roles"
    ),
    "tools_not_declared": (
        "our template does not support tools, and the reference does: declare `tools` in our template "
        "(gateway docs tools), or ignore this difference if no request has tools"
    ),
    "role_missing": (
        "our template has no role for a message that the reference writes: add the role to `reserved_roles`, "
        "or map the message's role under `roles`"
    ),
    "fallback_role": (
        "our template has no role SYSTEM and writes the system message with another role: "
        "add SYSTEM to `reserved_roles`, with the texts of the reference"
    ),
    "stricter_reference": (
        "the reference refuses a conversation that our template accepts: the model was not trained on such "
        "conversations, so expect worse answers"
    ),
}
"""Name of a cause → advice, in the order of the report."""


def causes_of(
    case: Case, ours: SideResult, reference: SideResult, *, bos: str, notices: Collection[str]
) -> tuple[str, ...]:
    """Return the names of all known causes of a difference. ``notices``: the rule names of our prompt's notices."""
    if ours.refused or reference.refused:
        tools, messages = case.dialogue.options.tools, case.dialogue.messages
        has_tools = bool(tools or any(message.raw.get("tool_calls") for message in messages))
        proven = {
            "tools_not_declared": ours.code == "unsupported_parameter" and has_tools,
            "role_missing": ours.code == "role_not_supported",
            "stricter_reference": reference.code == "invalid_value",
        }
    else:
        proven = _proven_by_texts(case, ours.text, reference.text, bos)
        proven["fallback_role"] = "fallback_role" in notices
    return tuple([name for name in CAUSES if proven.get(name)])


def _proven_by_texts(case: Case, ours: str, reference: str, bos: str) -> dict[str, bool]:
    our_bos, their_bos = _count_bos(ours, bos), _count_bos(reference, bos)
    ours, reference = ours[our_bos * len(bos) :], reference[their_bos * len(bos) :]
    dialogue = case.dialogue
    trimmed, kept = _is_trimmed(ours, reference, dialogue), _is_trimmed(reference, ours, dialogue)
    at_end = ours.rstrip() == reference.rstrip() and abs(len(ours) - len(reference)) <= MAX_BLANK
    same_words = "".join(ours.split()) == "".join(reference.split())
    return {
        "missing_bos": our_bos == 0 < their_bos,
        "double_bos": our_bos > max(1, their_bos),
        "added_bos": our_bos == 1 and their_bos == 0,
        "reference_doubles_bos": their_bos > max(1, our_bos),
        "default_system": _has_more_system(ours, reference, dialogue),
        "own_system": _has_more_system(reference, ours, dialogue),
        "trimmed_content": trimmed,
        "kept_white_space": kept,
        "missing_opening": not case.whole and _ends_early(ours, reference, dialogue),
        "longer_opening": not case.whole and _ends_early(reference, ours, dialogue),
        "white_space_at_end": ours != reference and at_end,
        "white_space": ours != reference and same_words and not (trimmed or kept or at_end),
    }


def _count_bos(text: str, bos: str) -> int:
    """Return the number of BOS tokens at the start of a text."""
    number = 0
    while bos and text.startswith(bos, number * len(bos)):
        number += 1
    return number


def _has_more_system(shorter: str, longer: str, dialogue: Dialogue) -> bool:
    """Return whether ``longer`` adds a text before the first message.

    Return False if the request has a system message or tools, because their text is expected there.
    """
    messages = dialogue.messages
    if dialogue.options.tools or not messages or messages[0].role in SYSTEM_ROLES:
        return False
    first = messages[0].text.strip()
    for text in dict.fromkeys((shorter, _stripped(shorter, dialogue))):  # the longer text may be trimmed too
        more = len(longer) - len(text)
        at = first_difference(text, longer)
        is_one_piece = more > 0 and longer[at + more :] == text[at:]
        # If the same marker is on both sides of the piece, ``at`` may be inexact, but must be before the first message.
        if is_one_piece and any(map(str.isalpha, longer[at : at + more])) and first and at <= text.find(first):
            return True
    return False


def _ends_early(shorter: str, longer: str, dialogue: Dialogue) -> bool:
    """Return whether the longer text is the shorter text followed by more than white space."""
    if dialogue.options.continue_final or not longer.startswith(shorter):
        return False
    return bool(longer[len(shorter) :].strip())


def _spaced_texts(dialogue: Dialogue) -> list[str]:
    """Return the messages with white space around the text. Long texts come first: they may contain short texts."""
    texts = {message.text for message in dialogue.messages}
    return sorted([text for text in texts if text != text.strip()], key=lambda text: (-len(text), text))


def _stripped(text: str, dialogue: Dialogue) -> str:
    """Return the prompt ``text`` with every message trimmed."""
    for spaced in _spaced_texts(dialogue):
        text = text.replace(spaced, spaced.strip())
    return text


def _is_trimmed(full: str, trimmed: str, dialogue: Dialogue) -> bool:
    """Return whether a message has white space around the text in ``full`` but not in ``trimmed``."""
    spaced = _spaced_texts(dialogue)
    if spaced and _stripped(full, dialogue) == trimmed:
        return True
    return any(text in full and text not in trimmed and text.strip() in trimmed for text in spaced if text.strip())
