"""For alternating conversations both orders of turns give the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatemplate.templates.registry import build
from metatemplate.templates.spec import RoleSpec, TemplateSpec
from metatemplate.values import fast_paths
from metatemplate.values.dialogue import DEFAULT_OPTIONS, Dialogue, Message, RenderOptions, plain_messages
from tests.support.reference.opencompass.parsers import LMParser
from tests.support.reference.opencompass.prompt_list import PromptList

TEXTS = st.text(alphabet=st.sampled_from("ab <>\n{}é漢🙂"), max_size=6)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """HUMAN and BOT, now and then with bare text or roles that have a default prompt anywhere in the round."""

    def extra(name: str) -> st.SearchStrategy[list[RoleSpec | str]]:
        roles = st.builds(RoleSpec, role=st.just(name), begin=TEXTS, end=TEXTS, prompt=TEXTS)
        return st.lists(st.one_of(TEXTS, roles), max_size=1)

    human = RoleSpec("HUMAN", draw(TEXTS), draw(TEXTS))
    bot = RoleSpec("BOT", draw(TEXTS), draw(TEXTS), generate=True)
    system = RoleSpec("SYSTEM", draw(TEXTS), draw(TEXTS))
    return {
        "begin": draw(TEXTS),
        "end": draw(TEXTS),
        "round": (*draw(extra("X")), human, *draw(extra("Y")), bot, *draw(extra("Z"))),
        "reserved_roles": (system,) if draw(st.booleans()) else (),
    }


@st.composite
def alternating(draw: st.DrawFn) -> tuple[Message, ...]:
    """An optional system message, then user and assistant in turn, the user last."""
    messages = [Message("system", draw(TEXTS))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 3))):
        messages += [Message("user", draw(TEXTS)), Message("assistant", draw(TEXTS))]
    return (*messages, Message("user", draw(TEXTS)))


ORDERS = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), TEXTS), min_size=1, max_size=6)


@pytest.mark.skipif(not fast_paths.ENABLED, reason="compares a fast path with the general form")
@settings(max_examples=100, deadline=None)
@given(specs(), ORDERS, st.booleans())
def test_columns_are_written_as_the_same_messages_are(
    keys: dict[str, Any], turns: list[tuple[str, str]], goes_on: bool
) -> None:
    raws = [{"role": role, "content": text} for role, text in turns]
    columns, made = plain_messages(raws), build(TemplateSpec("t", "meta", turns="natural", **keys))
    assert columns is not None
    goes_on = goes_on and turns[-1][0] == "assistant"
    quick = made.render(Dialogue(columns, RenderOptions(goes_on) if goes_on else DEFAULT_OPTIONS))
    careful = made.render(Dialogue(tuple(columns), RenderOptions(goes_on)))
    assert (quick.text, quick.metadata.notices, quick.segments) == (
        careful.text,
        careful.metadata.notices,
        careful.segments,
    )
    assert "".join(segment.text for segment in quick.segments or ()) == quick.text


@settings(max_examples=100, deadline=None)
@given(specs(), alternating())
def test_natural_is_opencompass_when_turns_alternate(keys: dict[str, Any], messages: tuple[Message, ...]) -> None:
    said = Dialogue(plain_messages([{"role": m.role, "content": m.text} for m in messages]) or messages)
    natural = build(TemplateSpec("t", "meta", turns="natural", **keys)).render(said)
    reference = build(TemplateSpec("t", "meta", turns="opencompass", **keys)).render(said)
    assert natural.text == reference.text


@settings(max_examples=100, deadline=None)
@given(specs(), alternating())
def test_opencompass_is_the_parser_on_the_same_promptlist(keys: dict[str, Any], messages: tuple[Message, ...]) -> None:
    names = {"system": "SYSTEM", "user": "HUMAN", "assistant": "BOT"}
    turns = [{"role": names[message.role], "prompt": message.text} for message in messages]
    begin = [{**turn, "fallback_role": "HUMAN"} for turn in turns if turn["role"] == "SYSTEM"]
    spoken = [turn for turn in turns if turn["role"] != "SYSTEM"]
    items = [
        {"section": "begin", "pos": "begin"},
        *begin,
        {"section": "begin", "pos": "end"},
        {"section": "round", "pos": "begin"},
        *spoken,
        {"section": "round", "pos": "end"},
    ]
    meta = {
        "begin": keys["begin"],
        "end": keys["end"],
        "round": [plain(entry) for entry in keys["round"]],
        "reserved_roles": [plain(entry) for entry in keys["reserved_roles"]],
    }
    spec = TemplateSpec("t", "meta", turns="opencompass", **keys)
    assert build(spec).render(Dialogue(messages)).text == LMParser(meta).parse(PromptList(items))


def plain(entry: RoleSpec | str) -> Any:
    if isinstance(entry, str):
        return entry
    role = {"role": entry.role, "begin": entry.begin, "end": entry.end, "generate": entry.generate}
    return role if entry.prompt is None else {**role, "prompt": entry.prompt}
