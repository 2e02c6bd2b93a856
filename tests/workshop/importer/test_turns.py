"""Turns are found by probing a renderer; where there are none, the reason is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from gateway.core.errors import InvalidValue
from gateway.workshop.importer.turns import NotTurns, Turns
from gateway.workshop.importer.turns import infer as infer_of
from gateway.workshop.parity.sides import Side
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Prompt

Messages = Sequence[Mapping[str, str]]
Say = Callable[[Messages, bool], str]


def infer(say: Say, *, closes: bool = True, **more: Any) -> Turns:
    """The turns of a function of messages; ``closes``: it can leave the assistant's turn out."""

    def render(dialogue: Dialogue) -> Prompt:
        messages = [{"role": one.role, "content": one.text} for one in dialogue.messages]
        return Prompt(say(messages, not dialogue.options.whole))

    return infer_of(Side(render, closes), **more)


def tagged(messages: Messages, open_turn: bool) -> str:
    """Every turn in its tags."""
    said = "".join([f"<{one['role']}>{one['content']}</{one['role']}>\n" for one in messages])
    return f"<s>{said}" + ("<assistant>" if open_turn else "")


def test_each_role_gets_its_begin_and_end() -> None:
    assert infer(tagged, bos_text="<s>").keys() == {
        "begin": "<s>",
        "round": [
            {"role": "HUMAN", "begin": "<user>", "end": "</user>\n"},
            {"role": "BOT", "begin": "<assistant>", "end": "</assistant>\n", "generate": True},
        ],
        "reserved_roles": [{"role": "SYSTEM", "begin": "<system>", "end": "</system>\n"}],
    }


def test_a_renderer_that_always_opens_the_answer_gives_the_same_turns() -> None:
    found = infer(lambda messages, open_turn: tagged(messages, True), bos_text="<s>", closes=False)
    assert found == infer(tagged, bos_text="<s>")


def test_a_bos_in_every_turn_stays_in_the_begin_as_well() -> None:
    def say(messages: Messages, open_turn: bool) -> str:
        return "".join(
            [f"<s>[{one['content']}]" if one["role"] == "user" else f"{one['content']}</s>" for one in messages]
        )

    found = infer(say, bos_text="<s>", system=False)
    assert (found.begin, found.human, found.answer[1]) == ("<s>", ("[", "]"), "</s><s>")


def test_an_answer_that_begins_otherwise_when_asked_for_is_a_role_of_its_own() -> None:
    def say(messages: Messages, open_turn: bool) -> str:
        names = {"user": "U", "assistant": "A", "system": "S"}
        said = "".join([f"{names[one['role']]}: {one['content']}\n" for one in messages])
        return said + ("A:" if open_turn else "")

    keys = infer(say).keys()
    assert keys["round"][1] == {"role": "BOT", "begin": "A:", "end": "\n", "generate": True}
    assert keys["reserved_roles"][1] == {"role": "ANSWER", "begin": "A: ", "end": "\n"}
    assert keys["roles"] == {"assistant": "ANSWER"}


def refusing(messages: Messages, open_turn: bool) -> str:
    if messages[0]["role"] == "system":
        raise InvalidValue("no system, please")
    return tagged(messages, open_turn)


def default_system(messages: Messages, open_turn: bool) -> str:
    led = messages[0]["role"] == "system"
    return ("" if led else "<system>Me.</system>\n") + tagged(messages, open_turn).removeprefix("<s>")


NOT: dict[str, tuple[Say, str]] = {
    "system messages are refused": (
        refusing,
        "the source refuses a test conversation with the roles system, user: no system, please",
    ),
    "a system turn nobody sent": (default_system, "a system message changes the start of the prompt"),
    "numbers": (
        lambda messages, _: "".join(f"{n}:{m['content']}" for n, m in enumerate(messages)),
        "in two ways, .* and ",
    ),
    "only the last message": (lambda messages, _: str(messages[-1]["content"]), "left out or changed"),
    "said twice": (lambda messages, _: "".join(m["content"] * 2 for m in messages), "written more than once"),
    "backwards": (lambda messages, _: "".join(m["content"] for m in reversed(messages)), "is moved before an earlier"),
    "in capitals": (lambda messages, _: "".join(m["content"].upper() for m in messages), "left out or changed"),
}


@pytest.mark.parametrize(("say", "why"), NOT.values(), ids=NOT)
def test_where_there_are_no_turns_the_reason_is_given(say: Say, why: str) -> None:
    with pytest.raises(NotTurns, match=why):
        infer(say)
