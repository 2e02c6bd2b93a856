"""The template's role for a message: by OpenAI's role, by the template's own role name, or by ``fallback_role``."""

from __future__ import annotations

from typing import Any

import pytest

from metatemplate.errors import UnknownRole
from metatemplate.values.dialogue import Dialogue
from tests.metatemplate.templates.samples import (
    API,
    API_SYSTEM,
    BOT,
    HUMAN,
    PLAIN,
    RESERVED,
    RESULTS,
    THINKING,
    message,
    template,
)

U, A, S = "user", "assistant", "system"
CRITIC = {"role": "CRITIC", "begin": "<CRITIC>: ", "end": "\n"}

Turns = list[tuple[str, str] | tuple[str, str, str]]
"""(role, content) or (role, content, fallback_role)."""


def said(turns: Turns, **options: Any) -> Dialogue:
    return Dialogue(
        tuple([message(role, text, **({"fallback_role": more[0]} if more else {})) for role, text, *more in turns])
    )


PROMPTS: dict[str, tuple[dict[str, Any], Turns, str, tuple[str, ...]]] = {
    # name: (file, messages, prompt, notices); the same prompt with both orders of turns
    "a default prompt is replaced in its round only": (
        THINKING,
        [(U, "q"), ("THOUGHTS", "hm"), (A, "a"), (U, "r")],
        "<HUMAN>: q<eoh>\nTHOUGHTS: hm<eot>\n<BOT>: a<eob>\n<HUMAN>: r<eoh>\nTHOUGHTS: None<eot>\n<BOT>: ",
        (),
    ),
    "a default prompt is replaced by an empty one": (
        THINKING,
        [(U, "q"), ("THOUGHTS", "")],
        "<HUMAN>: q<eoh>\nTHOUGHTS: <eot>\n<BOT>: ",
        (),
    ),
    "the template's names for the usual roles": (
        RESERVED,
        [("SYSTEM", "s"), ("HUMAN", "q"), ("BOT", "a"), ("HUMAN", "r")],
        "<SYSTEM>: s<eosys>\n<HUMAN>: q<eoh>\n<BOT>: a<eob>\n<HUMAN>: r<eoh>\n<BOT>: ",
        (),
    ),
    "a role that the template has needs no fallback": (
        {"round": [HUMAN, RESULTS, BOT]},
        [(U, "q"), ("RESULTS", "42", "HUMAN")],
        "<HUMAN>: q<eoh>\nRESULTS: 42<eor>\n<BOT>: ",
        (),
    ),
    "a fallback for the system role": (
        {"round": [HUMAN, BOT], "reserved_roles": [CRITIC]},
        [(S, "s", "CRITIC"), (U, "q")],
        "<CRITIC>: s\n<HUMAN>: q<eoh>\n<BOT>: ",
        ("fallback_role: messages[0]: SYSTEM written as CRITIC",),
    ),
    "without a fallback of its own a system message is the human's": (
        PLAIN,
        [(S, "s"), (U, "q")],
        "<HUMAN>: s<eoh>\n<HUMAN>: q<eoh>\n<BOT>: ",
        ("fallback_role: messages[0]: SYSTEM written as HUMAN",),
    ),
}


@pytest.mark.parametrize("turns", ["natural", "opencompass"])
@pytest.mark.parametrize("name", PROMPTS)
def test_a_message_is_written_by_the_role_that_it_names(name: str, turns: str) -> None:
    raw, messages, expected, notices = PROMPTS[name]
    prompt = template(raw, turns=turns).render(said(messages))
    assert prompt.text == expected
    found = [str(notice) for notice in prompt.metadata.notices]
    assert [notice for notice in found if not notice.startswith("default_prompt")] == list(notices)


ORDERS = {  # turns: the prompt of a foreign role in the round
    "natural": "<HUMAN>: q<eoh>\n<HUMAN>: why?<eoh>\n<BOT>: ",
    "opencompass": "<HUMAN>: q<eoh>\n<HUMAN>: why?<eoh>\n<BOT>: ",
}


@pytest.mark.parametrize("fallback", ["HUMAN", "user"])
@pytest.mark.parametrize("turns", ORDERS)
def test_a_role_that_the_template_lacks_falls_back(turns: str, fallback: str) -> None:
    prompt = template(PLAIN, turns=turns).render(said([(U, "q"), ("critic", "why?", fallback)]))
    assert prompt.text == ORDERS[turns]
    assert [str(one) for one in prompt.metadata.notices] == [
        "fallback_role: messages[1]: unknown role written as HUMAN"
    ]


def test_an_api_template_falls_back_and_keeps_the_field_to_itself() -> None:
    prompt = template(API).render(said([(S, "s", "BOT"), (U, "q"), ("tool", "42", "HUMAN")]))
    assert prompt.messages == ({"role": A, "content": "s"}, {"role": U, "content": "q\n42"})
    prompt = template(API_SYSTEM).render(said([(S, "s", "HUMAN"), (U, "q")]))
    assert prompt.messages == ({"role": S, "content": "s"}, {"role": U, "content": "q"})


REFUSED: dict[str, tuple[dict[str, Any], Turns, str, str]] = {
    "no role and no fallback": (
        PLAIN,
        [("critic", "c")],
        "messages[0].role",
        'no role for "critic"; supported roles: system, developer, user, assistant, HUMAN',
    ),
    "an unknown fallback": (
        PLAIN,
        [("critic", "c", "judge")],
        "messages[0].fallback_role",
        'no role for "critic" and no role for the fallback_role "judge"; supported roles',
    ),
    "a fallback that falls back itself": (PLAIN, [("critic", "c", "SYSTEM")], "messages[0].fallback_role", '"SYSTEM"'),
    "a system message with an unknown fallback": (PLAIN, [(S, "c", "judge")], "messages[0].fallback_role", '"judge"'),
}


@pytest.mark.parametrize("turns", ["natural", "opencompass"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_role_without_a_place_is_refused(name: str, turns: str) -> None:
    raw, messages, param, words = REFUSED[name]
    with pytest.raises(UnknownRole) as caught:
        template(raw, turns=turns).render(said(messages))
    assert (caught.value.param, words in caught.value.message) == (param, True), caught.value.message


def test_a_fallback_role_must_be_a_name() -> None:
    dialogue = Dialogue((message("critic", "c", fallback_role=["HUMAN"]),))
    with pytest.raises(UnknownRole, match="and no role for the fallback_role"):
        template(PLAIN).render(dialogue)
