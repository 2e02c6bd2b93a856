from __future__ import annotations

from typing import Any

import pytest

from metatemplate.errors import InvalidInput, UnknownRole
from metatemplate.values.dialogue import Dialogue, RenderOptions
from tests.metatemplate.templates.samples import API, API_SYSTEM, dialogue, message, template

U, A, S = "user", "assistant", "system"
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


def sent(*turns: tuple[str, Any]) -> tuple[dict[str, Any], ...]:
    return tuple({"role": role, "content": content} for role, content in turns)


WRAPPED = {
    "round": [
        {"role": "HUMAN", "api_role": "HUMAN", "begin": "<", "end": ">"},
        {"role": "BOT", "api_role": "BOT", "generate": True},
    ]
}
THINKING = {"round": [API["round"][0], {"role": "NOTE", "api_role": "HUMAN", "prompt": "Think."}, API["round"][1]]}

NATURAL: dict[str, tuple[dict[str, Any], list[tuple[str, Any]], tuple[dict[str, Any], ...], tuple[str, ...]]] = {
    "as they are": (
        API_SYSTEM,
        [(S, "s"), (U, "q"), (A, "a"), (U, "r")],
        sent((S, "s"), (U, "q"), (A, "a"), (U, "r")),
        (),
    ),
    "a system message the API does not take": (
        API,
        [(S, "s"), (U, "q")],
        sent((U, "s\nq")),
        ("merged_turns: messages[0] to messages[1]", "fallback_role: messages[0]: SYSTEM written as HUMAN"),
    ),
    "neighbours are merged, empty ones too": (
        API,
        [(U, "q"), (U, ""), (U, "r")],
        sent((U, "q\n\nr")),
        ("merged_turns: messages[0] to messages[2]",),
    ),
    "begin and end of a role count": (WRAPPED, [(U, "q")], sent((U, "<q>")), ()),
    "meta begin is a system message of its own": (
        {**API_SYSTEM, "begin": "Be kind."},
        [(S, "s"), (U, "q")],
        sent((S, "Be kind."), (S, "s"), (U, "q")),
        (),
    ),
    "meta begin as the reference's message": (
        {**API, "begin": {"role": "SYSTEM", "prompt": "Be kind."}},
        [(U, "q")],
        sent((S, "Be kind."), (U, "q")),
        (),
    ),
    "a default prompt joins its neighbour": (THINKING, [(U, "q")], sent((U, "q\nThink.")), ()),
    "media stay parts": (API, [(U, [IMAGE])], sent((U, [IMAGE])), ()),
    "text beside parts becomes a part": (
        API,
        [(U, "look"), (U, [IMAGE])],
        sent((U, [{"type": "text", "text": "look"}, IMAGE])),
        ("merged_turns: messages[0] to messages[1]",),
    ),
    "begin and end around parts are parts": (
        WRAPPED,
        [(U, [IMAGE])],
        sent((U, [{"type": "text", "text": "<"}, IMAGE, {"type": "text", "text": ">"}])),
        (),
    ),
    "an answer at the end is sent along": (API, [(U, "q"), (A, "a")], sent((U, "q"), (A, "a")), ()),
}


@pytest.mark.parametrize(("raw", "turns", "messages", "notices"), NATURAL.values(), ids=NATURAL)
def test_messages_become_the_apis(
    raw: dict[str, Any], turns: list[tuple[str, Any]], messages: tuple[dict[str, Any], ...], notices: tuple[str, ...]
) -> None:
    prompt = template(raw).render(dialogue(*turns))
    assert prompt.messages == messages
    assert prompt.segments is None
    assert tuple(map(str, prompt.metadata.notices)) == notices


OPENCOMPASS: dict[str, tuple[dict[str, Any], list[tuple[str, Any]], tuple[dict[str, Any], ...], tuple[str, ...]]] = {
    "two users in a row have an empty answer between": (
        API,
        [(U, "q"), (U, "r")],
        sent((U, "q"), (A, ""), (U, "r")),
        (),
    ),
    "a reserved system in the round is lost, and said to be": (
        {**API, "reserved_roles": [{"role": "SYSTEM", "api_role": "SYSTEM"}]},
        [(U, "q"), (A, "a"), (S, "s"), (U, "r")],
        sent((U, "q"), (A, "a"), (U, ""), (A, ""), (U, "r")),
        ("dropped_turn: messages[2]: the role is not in the round, or comes after the answer",),
    ),
    "an image passes": (API, [(U, [IMAGE])], sent((U, [IMAGE])), ()),
}


@pytest.mark.parametrize(("raw", "turns", "messages", "notices"), OPENCOMPASS.values(), ids=OPENCOMPASS)
def test_opencompass_turns_are_the_references(
    raw: dict[str, Any], turns: list[tuple[str, Any]], messages: tuple[dict[str, Any], ...], notices: tuple[str, ...]
) -> None:
    prompt = template(raw, turns="opencompass").render(dialogue(*turns))
    assert prompt.messages == messages
    assert tuple(map(str, prompt.metadata.notices)) == notices


@pytest.mark.parametrize("turns", ["natural", "opencompass"])
def test_nothing_to_send_is_an_error(turns: str) -> None:
    raw = {
        "round": [{"role": "BOT", "api_role": "BOT", "generate": True}, {"role": "HUMAN", "api_role": "HUMAN"}],
        "turns": turns,
    }
    with pytest.raises(InvalidInput, match="no message comes before the model's answer"):
        template(raw).render(Dialogue(()))


def test_tool_calls_travel_and_are_not_merged() -> None:
    raw = {**API, "reserved_roles": [{"role": "TOOL", "api_role": "TOOL"}], "roles": {"tool": "TOOL"}}
    call = message(A, "", tool_calls=[{"id": "1"}])
    answers = [message("tool", "4", tool_call_id="1"), message("tool", "5", tool_call_id="2")]
    prompt = template(raw).render(Dialogue((message(U, "q"), call, *answers)))
    assert prompt.messages == (
        {"role": U, "content": "q"},
        {"role": A, "content": "", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "4", "tool_call_id": "1"},
        {"role": "tool", "content": "5", "tool_call_id": "2"},
    )


def test_a_role_without_api_role_is_refused() -> None:
    with pytest.raises(UnknownRole) as caught:
        template(API).render(dialogue((U, "q"), ("tool", "4")))
    assert caught.value.param == "messages[1].role"


def test_a_continued_message_keeps_its_end_open() -> None:
    raw = {"round": [API["round"][0], {**API["round"][1], "end": "</s>"}]}
    prompt = template(raw).render(dialogue((U, "q"), (A, "The"), continue_final=True))
    assert prompt.messages == sent((U, "q"), (A, "The"))


def test_chat_hands_messages_on_untouched() -> None:
    raw = {"role": "anything", "content": None, "tool_calls": [1], "extra": {"a": 1}}
    said = Dialogue(
        (message("anything", None, tool_calls=[1], extra={"a": 1}),), RenderOptions(tools=({"type": "function"},))
    )
    prompt = template({"kind": "chat", "stop": ["###"], "eos_token_id": 7}).render(said)
    assert prompt.messages == (raw,)
    assert (prompt.metadata.stops, prompt.metadata.stop_token_ids, prompt.metadata.bos) == (("###",), (7,), "none")
