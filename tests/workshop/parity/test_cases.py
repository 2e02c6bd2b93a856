"""The matrix has unique names, is fixed, and consists of conversations that a client could send."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gateway.workshop.parity.cases import LOOK_ALIKES, Case, matrix
from tests.metatemplate.chat_templates.samples import dialogue

CASES = matrix(("<s>", "</s>"))


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 50


def test_two_runs_compare_the_same_conversations() -> None:
    assert matrix(("<s>", "</s>")) == CASES
    assert [case.name for case in matrix()] == [case.name for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_what_a_request_brings(case: Case) -> None:
    body: dict[str, Any] = {"messages": copy.deepcopy(list(case.messages))}
    if case.tools:
        body["tools"] = copy.deepcopy(list(case.tools))
    if case.continue_final:
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    if case.whole:
        body |= {"add_generation_prompt": False, "prompt_logprobs": 0}
    json.dumps(body)
    assert dialogue(body) == case.dialogue


def test_the_matrix_covers_turns_roles_tools_and_open_ends() -> None:
    numbers = {sum(message["role"] == "user" for message in case.messages) for case in CASES}
    assert numbers >= {0, 1, 2, 3, 4, 5}
    roles = {message["role"] for case in CASES for message in case.messages}
    assert roles == {"system", "user", "assistant", "tool"}
    assert any(case.tools for case in CASES)
    assert any(message.get("tool_calls") for case in CASES for message in case.messages)
    assert any(case.continue_final for case in CASES)
    assert any(case.whole for case in CASES)
    assert any(message["content"] == "" for case in CASES for message in case.messages)


def said(cases: tuple[Case, ...]) -> str:
    return "".join(str(message["content"]) for case in cases for message in case.messages)


def test_the_look_alikes_are_the_tokens_of_the_reference() -> None:
    assert "<|odd|>" in said(matrix(("<|odd|>", "<|odd|>", " ")))
    assert "<|odd|>" not in said(CASES)
    assert all(token in said(matrix()) for token in LOOK_ALIKES)
