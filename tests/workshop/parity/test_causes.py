"""Each known cause is found where it is, and nowhere else: one template broken in one place for each."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.workshop.parity.cases import Case, matrix
from gateway.workshop.parity.causes import CAUSES
from gateway.workshop.parity.compare import compare
from gateway.workshop.parity.sides import Side
from metatemplate.templates.base import Template
from tests.workshop.parity.samples import BEGIN, BOT, HUMAN, OPENING, TURN, chat, ours

SENT = {case.name: case for case in matrix(("<s>",))}
SENT["a critic"] = Case("a critic", ({"role": "user", "content": "hi"}, {"role": "critic", "content": "no"}))

DEFAULT_SYSTEM = BEGIN + (
    "{% if messages[0].role != 'system' %}{{ '<|system|>You are helpful.<|end|>\\n' }}{% endif %}"
)
TRIMMING = TURN.replace("m.content", "(m.content | trim)")
JOINED = "{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% if not loop.last %}{{ '\\n' }}{% endif %}"
ALTERNATING = BEGIN + "{% if messages[0].role == 'assistant' %}{{ raise_exception('the user begins') }}{% endif %}"
WITH_TOOLS = BEGIN + "{% if tools %}{{ tools | tojson }}{% endif %}"

NO_BOS: dict[str, Any] = {"begin": None, "bos": None, "bos_text": None}

BROKEN: dict[str, tuple[Template | Side, Template | Side, str, tuple[str, ...]]] = {
    # ours, reference, case, causes
    "the same": (ours(), chat(), "three turns", ()),
    "no BOS": (ours(**NO_BOS), chat(), "one turn", ("missing_bos",)),
    "no BOS and another role": (
        ours(**NO_BOS, round=[{**HUMAN, "begin": "<|human|>"}, BOT]), chat(), "one turn", ("missing_bos",),
    ),
    "two BOS": (ours(bos="engine", bos_text=None), chat(), "one turn", ("double_bos",)),
    "a BOS too many": (ours(), chat(""), "one turn", ("added_bos",)),
    "the reference has two": (ours(), chat(BEGIN * 2), "one turn", ("reference_doubles_bos",)),
    "a BOS on no side": (ours(**NO_BOS), chat(""), "one turn", ()),
    "a default system turn": (ours(), chat(DEFAULT_SYSTEM), "one turn", ("default_system",)),
    "a default system turn, and one was sent": (ours(), chat(DEFAULT_SYSTEM), "system, one turn", ()),
    "a default system turn and no BOS": (
        ours(**NO_BOS), chat(DEFAULT_SYSTEM), "two turns", ("missing_bos", "default_system"),
    ),
    "a default system turn, and all is trimmed": (
        ours(), chat(DEFAULT_SYSTEM, TRIMMING), "trailing space", ("default_system", "trimmed_content"),
    ),
    "a system turn of our own": (
        ours(begin="<s><|system|>Be kind.<|end|>\n"), chat(), "two turns", ("own_system",),
    ),
    "trimmed at the end": (ours(), chat(turn=TRIMMING), "trailing space", ("trimmed_content",)),
    "trimmed at the beginning": (ours(), chat(turn=TRIMMING), "leading newline", ("trimmed_content",)),
    "trimmed to nothing": (ours(), chat(turn=TRIMMING), "blank user", ("trimmed_content",)),
    "trimmed, and nothing to trim": (ours(), chat(turn=TRIMMING), "one turn", ()),
    "trimmed by the assistant": (ours(), chat(turn=TRIMMING), "blanks around assistant", ("trimmed_content",)),
    "trimmed by us": (chat(turn=TRIMMING), chat(), "trailing space", ("kept_white_space",)),
    "no opening": (chat(opening=""), chat(), "two turns", ("missing_opening",)),
    "an opening too long": (
        chat(opening=OPENING.replace("<|assistant|>", "<|assistant|>Answer:")), chat(), "two turns",
        ("longer_opening",),
    ),
    "a line break less at the end": (
        ours(), chat(opening=OPENING.replace("|>", "|>\\n")), "one turn", ("white_space_at_end",),
    ),
    "no line break behind the last turn": (
        ours(), chat(turn=JOINED), "whole, one turn", ("white_space_at_end",),
    ),
    "no line break between turns": (
        ours(round=[{**HUMAN, "end": "<|end|>"}, BOT]), chat(), "one turn", ("white_space",),
    ),
    "tools": (ours(), chat(WITH_TOOLS, tools={"parser": "json"}), "one tool", ("tools_not_declared",)),
    "a role": (ours(), chat(), "a critic", ("role_missing",)),
    "no system role": (ours(reserved_roles=None), chat(), "system, one turn", ("fallback_role",)),
    "no system role, and no system": (ours(reserved_roles=None), chat(), "one turn", ()),
    "a strict reference": (ours(), chat(ALTERNATING), "assistant first", ("stricter_reference",)),
}  # fmt: skip


@pytest.mark.parametrize(("ours", "reference", "name", "causes"), BROKEN.values(), ids=BROKEN)
def test_a_cause_is_seen_where_it_is(
    ours: Template | Side, reference: Template | Side, name: str, causes: tuple[str, ...]
) -> None:
    (result,) = compare(ours, reference, [SENT[name]], bos_token="<s>")
    assert result.causes == causes, (result.ours, result.reference)


def test_every_cause_has_a_test_and_a_sentence() -> None:
    assert {name for *_, causes in BROKEN.values() for name in causes} == set(CAUSES)
    assert all(": " in advice or ", " in advice for advice in CAUSES.values())


def test_no_cause_is_reported_without_a_difference() -> None:
    assert not [
        result for result in compare(ours(), chat(), SENT.values()) if result.causes and not result.is_different
    ]
