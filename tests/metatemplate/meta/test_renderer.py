from __future__ import annotations

from typing import Any

import pytest

from metatemplate.errors import InputError, InvalidInput, UnknownRole, UnsupportedInput, UnsupportedMedia
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Segment
from tests.metatemplate.templates.samples import (
    BOT,
    HUMAN,
    PLAIN,
    RESERVED,
    RESULTS,
    SYSTEM,
    THINKING,
    THOUGHTS,
    dialogue,
    message,
    template,
)

U, A, S = "user", "assistant", "system"

NATURAL: dict[str, tuple[dict[str, Any], list[tuple[str, Any]], str]] = {
    "one question": (PLAIN, [(U, "1+1=?")], "<HUMAN>: 1+1=?<eoh>\n<BOT>: "),
    "system in front": (RESERVED, [(S, "s"), (U, "q")], "<SYSTEM>: s<eosys>\n<HUMAN>: q<eoh>\n<BOT>: "),
    "developer speaks as system": (
        RESERVED,
        [("developer", "s"), (U, "q")],
        "<SYSTEM>: s<eosys>\n<HUMAN>: q<eoh>\n<BOT>: ",
    ),
    "system without a role falls back to HUMAN": (
        PLAIN,
        [(S, "s"), (U, "q")],
        "<HUMAN>: s<eoh>\n<HUMAN>: q<eoh>\n<BOT>: ",
    ),
    "system later is spoken where it stands": (
        RESERVED,
        [(U, "q"), (A, "a"), (S, "s"), (U, "r")],
        "<HUMAN>: q<eoh>\n<BOT>: a<eob>\n<SYSTEM>: s<eosys>\n<HUMAN>: r<eoh>\n<BOT>: ",
    ),
    "two users in a row invent no answer": (
        PLAIN,
        [(U, "q"), (U, "r")],
        "<HUMAN>: q<eoh>\n<HUMAN>: r<eoh>\n<BOT>: ",
    ),
    "an assistant at the end is kept and asked again": (
        PLAIN,
        [(U, "q"), (A, "a")],
        "<HUMAN>: q<eoh>\n<BOT>: a<eob>\n<BOT>: ",
    ),
    "an assistant in front": (PLAIN, [(A, "hi"), (U, "q")], "<BOT>: hi<eob>\n<HUMAN>: q<eoh>\n<BOT>: "),
    "no message at all": (PLAIN, [], "<BOT>: "),
    "meta begin comes first, meta end never": (
        {**PLAIN, "begin": "Hello.", "end": "Bye."},
        [(U, "q")],
        "Hello.<HUMAN>: q<eoh>\n<BOT>: ",
    ),
    "a default prompt speaks once in each round": (
        THINKING,
        [(U, "q"), (A, "a"), (U, "r")],
        "<HUMAN>: q<eoh>\nTHOUGHTS: None<eot>\n<BOT>: a<eob>\n<HUMAN>: r<eoh>\nTHOUGHTS: None<eot>\n<BOT>: ",
    ),
    "a mapped role takes the place of its default": (
        {"round": [HUMAN, {**RESULTS, "prompt": "None"}, BOT], "roles": {"tool": "RESULTS"}},
        [(U, "q"), ("tool", "42"), (A, "a"), (U, "r")],
        "<HUMAN>: q<eoh>\nRESULTS: 42<eor>\n<BOT>: a<eob>\n<HUMAN>: r<eoh>\nRESULTS: None<eor>\n<BOT>: ",
    ),
    "a mapped role without a default is silent when absent": (
        {"round": [HUMAN, RESULTS, BOT], "roles": {"tool": "RESULTS"}},
        [(U, "q")],
        "<HUMAN>: q<eoh>\n<BOT>: ",
    ),
    "a default after the answer waits for the next round": (
        {"round": [HUMAN, BOT, THOUGHTS]},
        [(U, "q"), (A, "a"), (U, "r")],
        "<HUMAN>: q<eoh>\n<BOT>: a<eob>\nTHOUGHTS: None<eot>\n<HUMAN>: r<eoh>\n<BOT>: ",
    ),
    "text in the round is written in every round": (
        {"round": ["---\n", HUMAN, BOT, "===\n"]},
        [(U, "q"), (A, "a"), (U, "r")],
        "---\n<HUMAN>: q<eoh>\n<BOT>: a<eob>\n===\n---\n<HUMAN>: r<eoh>\n<BOT>: ",
    ),
    "SYSTEM in the round is silent when nobody speaks as system": (
        {"round": [SYSTEM, HUMAN, BOT]},
        [(U, "q"), (A, "a"), (U, "r")],
        "<HUMAN>: q<eoh>\n<BOT>: a<eob>\n<HUMAN>: r<eoh>\n<BOT>: ",
    ),
    "SYSTEM's default gives way to a system message": (
        {"round": [{**SYSTEM, "prompt": "be kind"}, HUMAN, BOT]},
        [(S, "be brief"), (U, "q")],
        "<SYSTEM>: be brief<eosys>\n<HUMAN>: q<eoh>\n<BOT>: ",
    ),
    "SYSTEM's default speaks when there is no system message": (
        {"round": [{**SYSTEM, "prompt": "be kind"}, HUMAN, BOT]},
        [(U, "q")],
        "<SYSTEM>: be kind<eosys>\n<HUMAN>: q<eoh>\n<BOT>: ",
    ),
    "braces and markers in content stay": (PLAIN, [(U, "{a} </E> <eoh>")], "<HUMAN>: {a} </E> <eoh><eoh>\n<BOT>: "),
    "text parts are joined with nothing between": (
        PLAIN,
        [(U, [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
        "<HUMAN>: ab<eoh>\n<BOT>: ",
    ),
    "media become the placeholder": (
        {**PLAIN, "media": "<image>"},
        [(U, [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}])],
        "<HUMAN>: a<image>b<eoh>\n<BOT>: ",
    ),
    "null content is empty": (PLAIN, [(U, None)], "<HUMAN>: <eoh>\n<BOT>: "),
    "roles with names of their own": (
        {
            "round": [{"role": "A", "begin": "A:"}, {"role": "B", "begin": "B:", "generate": True}],
            "roles": {"user": "A", "assistant": "B"},
        },
        [(U, "q"), (A, "a"), (U, "r")],
        "A:qB:aA:rB:",
    ),
}


@pytest.mark.parametrize(("raw", "turns", "prompt"), NATURAL.values(), ids=NATURAL)
def test_messages_become_the_prompt(raw: dict[str, Any], turns: list[tuple[str, Any]], prompt: str) -> None:
    assert template(raw).render(dialogue(*turns)).text == prompt


OPENCOMPASS: dict[str, tuple[dict[str, Any], list[tuple[str, Any]], str, tuple[str, ...]]] = {
    "two users in a row have an empty answer between": (
        PLAIN,
        [(U, "q"), (U, "r")],
        "<HUMAN>: q<eoh>\n<BOT>: <eob>\n<HUMAN>: r<eoh>\n<BOT>: ",
        (),
    ),
    "an answer at the end is lost, and said to be": (
        PLAIN,
        [(U, "q"), (A, "a")],
        "<HUMAN>: q<eoh>\n<BOT>: ",
        ("dropped_turn: messages[1]: the message comes after the model's answer",),
    ),
    "no message gives one empty round": (PLAIN, [], "<HUMAN>: <eoh>\n<BOT>: ", ()),
    "system later is spoken where it stands": (
        RESERVED,
        [(U, "q"), (S, "s"), (U, "r")],
        "<HUMAN>: q<eoh>\n<SYSTEM>: s<eosys>\n<BOT>: <eob>\n<HUMAN>: r<eoh>\n<BOT>: ",
        (),
    ),
    "system falls back": (
        PLAIN,
        [(S, "s"), (U, "q")],
        "<HUMAN>: s<eoh>\n<HUMAN>: q<eoh>\n<BOT>: ",
        ("fallback_role: messages[0]: SYSTEM written as HUMAN",),
    ),
    "only a system message": (RESERVED, [(S, "s")], "<SYSTEM>: s<eosys>\n<HUMAN>: <eoh>\n<BOT>: ", ()),
}


@pytest.mark.parametrize(("raw", "turns", "prompt", "notices"), OPENCOMPASS.values(), ids=OPENCOMPASS)
def test_opencompass_turns_are_the_references(
    raw: dict[str, Any], turns: list[tuple[str, Any]], prompt: str, notices: tuple[str, ...]
) -> None:
    rendered = template(raw, turns="opencompass").render(dialogue(*turns))
    assert rendered.text == prompt
    assert tuple(map(str, rendered.metadata.notices)) == notices


@pytest.mark.parametrize("turns", ["natural", "opencompass"])
def test_segments_remember_who_wrote_them(turns: str) -> None:
    segments = template(THINKING, turns=turns, begin="Hi.").render(dialogue((S, "s"), (U, "q"))).segments
    assert segments == (
        Segment("Hi.", "", "template", True),
        Segment("<SYSTEM>: ", "SYSTEM", "messages[0]", True),
        Segment("s", "SYSTEM", "messages[0]", False),
        Segment("<eosys>\n", "SYSTEM", "messages[0]", True),
        Segment("<HUMAN>: ", "HUMAN", "messages[1]", True),
        Segment("q", "HUMAN", "messages[1]", False),
        Segment("<eoh>\n", "HUMAN", "messages[1]", True),
        Segment("THOUGHTS: ", "THOUGHTS", "template", True),
        Segment("None", "THOUGHTS", "template", True),
        Segment("<eot>\n", "THOUGHTS", "template", True),
        Segment("<BOT>: ", "BOT", "generate", True),
    )


BARE_TURNS = {"round": [{"role": "HUMAN"}, {"role": "BOT", "end": "\n", "generate": True}]}


def test_an_empty_begin_or_end_is_no_segment_but_an_empty_content_is() -> None:
    assert template(BARE_TURNS).render(dialogue((U, ""), (A, "a"), (U, "q"))).segments == (
        Segment("", "HUMAN", "messages[0]", False),
        Segment("a", "BOT", "messages[1]", False),
        Segment("\n", "BOT", "messages[1]", True),
        Segment("q", "HUMAN", "messages[2]", False),
        Segment("", "BOT", "generate", True),
    )


@pytest.mark.parametrize("raw", [PLAIN, THINKING, BARE_TURNS], ids=["plain", "thinking", "bare"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_long_talk_knows_where_each_segment_is_from(raw: dict[str, Any], goes_on: bool) -> None:
    talk = [((U, A)[number % 2], f"said {number}") for number in range(600)]
    for length in (2, 600, 4):  # what is kept of one talk serves the next
        prompt = template(raw).render(dialogue(*talk[:length], continue_final=goes_on))
        assert prompt.segments is not None
        assert "".join(segment.text for segment in prompt.segments) == prompt.text
        assert [(s.origin, s.text) for s in prompt.segments if not s.scaffold] == [
            (f"messages[{number}]", text) for number, (_, text) in enumerate(talk[:length])
        ]
        roles = {("HUMAN", "BOT")[int(s.origin[9:-1]) % 2] == s.role for s in prompt.segments if "[" in s.origin}
        assert roles == {True}


@pytest.mark.parametrize("turns", ["natural", "opencompass"])
def test_a_continued_message_stays_open(turns: str) -> None:
    prompt = template(PLAIN, turns=turns).render(dialogue((U, "q"), (A, "The answer is"), continue_final=True))
    assert prompt.text == "<HUMAN>: q<eoh>\n<BOT>: The answer is"
    assert prompt.segments is not None
    assert [segment.origin for segment in prompt.segments[-2:]] == ["messages[1]", "messages[1]"]


def test_rewrites_are_noticed() -> None:
    made = template({"round": [HUMAN, THOUGHTS, BOT]})
    spoken = Dialogue((message(S, "s"), message(U, "q", name="x"), message(A, "a"), message(U, "r")))
    assert [str(notice) for notice in made.render(spoken).metadata.notices] == [
        "fallback_role: messages[0]: SYSTEM written as HUMAN",
        "ignored_field: messages[1].name",
        "default_prompt: THOUGHTS",
    ]


IMAGE = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]

REFUSED: dict[str, tuple[Dialogue, type[InputError], str]] = {
    "a role nobody speaks": (dialogue((U, "q"), ("tool", "t")), UnknownRole, "messages[1].role"),
    "an image": (dialogue((U, IMAGE)), UnsupportedMedia, "messages[0].content[1]"),
    "tools": (dialogue((U, "q"), tools=({"type": "function"},)), UnsupportedInput, "tools"),
    "tool calls": (
        Dialogue((message(A, "", tool_calls=[{"id": "1"}]),)),
        UnsupportedInput,
        "messages[0].tool_calls",
    ),
    "a function call": (
        Dialogue((message(A, "", function_call={"name": "f"}),)),
        UnsupportedInput,
        "messages[0].function_call",
    ),
    "a user's message to be continued": (
        dialogue((U, "q"), continue_final=True),
        InvalidInput,
        "continue_final_message",
    ),
    "nothing to be continued": (dialogue(continue_final=True), InvalidInput, "continue_final_message"),
}


@pytest.mark.parametrize("turns", ["natural", "opencompass"])
@pytest.mark.parametrize(("asked", "error", "param"), REFUSED.values(), ids=REFUSED)
def test_what_a_string_cannot_carry_is_refused(
    asked: Dialogue, error: type[InputError], param: str, turns: str
) -> None:
    with pytest.raises(error) as caught:
        template(PLAIN, turns=turns).render(asked)
    assert caught.value.param == param


def test_an_unknown_role_is_named_escaped_and_cut() -> None:
    with pytest.raises(UnknownRole) as caught:
        template(PLAIN).render(dialogue(("é\n" + "x" * 500, "q")))
    assert 'no role for "\\xe9\\nxxx' in caught.value.message
    assert len(caught.value.message) < 250
    assert "system, developer, user, assistant" in caught.value.message


def test_empty_tool_calls_are_no_tool_calls() -> None:
    asked = Dialogue((message(U, "q"), message(A, "a", tool_calls=[]), message(U, "r")))
    assert template(PLAIN).render(asked).text.endswith("<BOT>: ")
