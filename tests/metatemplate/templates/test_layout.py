"""Prompts by a layout are those of the general form, and the number of layouts is bounded."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.requests import read_chat
from metatemplate.errors import UnknownRole
from metatemplate.meta.renderer import MetaTemplate
from metatemplate.templates.layout import MAX_LAYOUT_MESSAGES, MAX_LAYOUTS, PromptLayout
from metatemplate.templates.registry import dialogue_of
from metatemplate.templates.spec import Example
from metatemplate.values import fast_paths
from metatemplate.values.dialogue import (
    DEFAULT_OPTIONS,
    Dialogue,
    PlainMessages,
    RenderOptions,
    plain_messages,
    render_options,
)
from metatemplate.values.prompt import Prompt, PromptMetadata
from tests.metatemplate.templates.samples import BOT, HUMAN, PLAIN, RESERVED, THINKING, dialogue, template

pytestmark = pytest.mark.skipif(not fast_paths.ENABLED, reason="compares layouts, a fast path, with the general form")

A, S, U = "assistant", "system", "user"

CHAT: dict[str, Any] = {"kind": "prompter", "class": "chat", "marks_of": "qwen"}
TEMPLATES: dict[str, dict[str, Any]] = {
    "narrow": PLAIN,
    "with a system role": RESERVED,
    "with words of its own": THINKING,
    "a wide beginning": {**PLAIN, "begin": "书生\n"},
    "wide between, too": {"round": [{**HUMAN, "begin": "问: "}, BOT], "begin": "ä"},
    "nothing but a wide beginning": {"round": [{"role": "HUMAN"}, {"role": "BOT", "generate": True}], "begin": "😀"},
    "a prompter": CHAT,
    "a prompter with a wide beginning": {**CHAT, "marks_of": "internlm"},
    "a prompter with wide words": {**CHAT, "instruction": "Antworte höflich.", "history": [["你", "好"]]},
}
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["", "q", "é", "你好", "😀", "{x}", "%s"])
TURNS = st.lists(st.tuples(st.sampled_from([U, A, S]), TEXTS), min_size=1, max_size=6)
ALTERNATING = st.integers(0, 6).map(lambda rounds: [U, *[A, U] * rounds])


def same(made: Any, raws: list[dict[str, str]]) -> None:
    """By a layout, with options, and in general: the same text, notices and segments."""
    columns = plain_messages(raws)
    assert columns is not None
    said = [Dialogue(columns), Dialogue(columns, RenderOptions(parallel_calls=False)), Dialogue(tuple(columns))]
    fast, *general = [made.render(one) for one in said]
    for other in general:
        assert (fast.text, fast.metadata) == (other.text, other.metadata)
        assert fast.segments == other.segments
    assert "".join(segment.text for segment in fast.segments or ()) == fast.text


@pytest.mark.parametrize("name", [name for name in TEMPLATES if "prompter" not in name])
@settings(max_examples=30, deadline=None)
@given(TURNS)
def test_a_meta_template_writes_the_same_by_a_layout(name: str, turns: list[tuple[str, str]]) -> None:
    same(template(TEMPLATES[name]), [{"role": role, "content": text} for role, text in turns])


@pytest.mark.parametrize("name", [name for name in TEMPLATES if "prompter" in name])
@settings(max_examples=30, deadline=None)
@given(st.booleans(), ALTERNATING, st.data())
def test_a_prompter_writes_the_same_by_a_layout(name: str, led: bool, order: list[str], data: st.DataObject) -> None:
    raws = [{"role": role, "content": data.draw(TEXTS)} for role in ([S] if led else []) + order]
    same(template(TEMPLATES[name]), raws)


INSTRUCTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "one slot": ("Use {a}.", ("a",)),
    "one slot, and nothing else": ("{a}", ("a",)),
    "one slot twice": ("{a} and {a}", ("a",)),
    "two slots": ("{a} or {b}", ("a", "b")),
    "two slots, the second first": ("{b} {a} {b}", ("a", "b")),
    "wide words": ("Büch {a} 书", ("a",)),
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
@settings(max_examples=30, deadline=None)
@given(ALTERNATING, st.booleans(), st.data())
def test_values_of_slots_are_written_as_in_general(name: str, order: list[str], led: bool, data: st.DataObject) -> None:
    instruction, names = INSTRUCTIONS[name]
    variables = {one: data.draw(TEXTS) for one in names}
    raws = [{"role": role, "content": data.draw(TEXTS)} for role in ([S] if led else []) + order]
    columns, made = plain_messages(raws), template({**CHAT, "instruction": instruction})
    assert columns is not None
    quick, general = [
        made.render(Dialogue(one, RenderOptions(variables=variables))) for one in (columns, tuple(columns))
    ]
    assert (quick.text, quick.metadata, quick.segments) == (general.text, general.metadata, general.segments)


# ---------------------------------------------------------------- one layout


FILLED: dict[str, tuple[list[str], list[str], str]] = {
    "no gap": (["all"], [], "all"),
    "one gap": (["<", ">"], ["q"], "<q>"),
    "two gaps": (["<", "|", ">"], ["q", "a"], "<q|a>"),
    "a wide first word": (["书<", "|", ">"], ["q", "é"], "书<q|é>"),
    "a wide first word, one gap": (["书", ""], ["q"], "书q"),
    "wide words": (["书", "生", "。"], ["q", "a"], "书q生a。"),
    "a wide text": (["<", "|", ">"], ["你", "😀"], "<你|😀>"),
}


@pytest.mark.parametrize("name", FILLED)
def test_each_text_stands_in_its_gap(name: str) -> None:
    words, texts, whole = FILLED[name]
    layout = PromptLayout(words, PromptMetadata())
    assert (layout.fill(texts), layout.fill(texts)) == (whole, whole)


# ---------------------------------------------------------------- the cache


def test_an_order_is_laid_out_once_unless_it_is_long() -> None:
    made = template(PLAIN)
    assert isinstance(made, MetaTemplate)
    for length in (1, 3, 1, MAX_LAYOUT_MESSAGES + 1, MAX_LAYOUT_MESSAGES + 1):
        assert made.render(dialogue(*[(U, "q")] * length)).text.count("<HUMAN>: q") == length
    assert made._layouts.cache_info()[:4] == (1, 2, MAX_LAYOUTS, 2)  # hits, misses, limit, kept


def test_a_refusal_comes_every_time() -> None:
    made = template(PLAIN)
    said = Dialogue(PlainMessages((U, "critic"), ["q", "x"], [{}, {}]))
    for _ in range(2):
        with pytest.raises(UnknownRole) as caught:
            made.render(said)
        assert caught.value.param == "messages[1].role"


def test_threads_that_share_a_template_get_their_own_prompts() -> None:
    made, wrong = template(THINKING), []
    expected = {
        roles: template(THINKING).render(dialogue(*[(role, "x") for role in roles])).text
        for roles in (tuple(random.Random(seed).choices((U, A, S), k=1 + seed % 7)) for seed in range(150))
    }

    def render(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(1500):
            roles = rng.choice([*expected])
            if made.render(dialogue(*[(role, "x") for role in roles])).text != expected[roles]:
                wrong.append(roles)

    threads = [threading.Thread(target=render, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---------------------------------------------------------------- metadata and options


def test_prompts_of_one_order_have_equal_metadata() -> None:
    made = template(THINKING)
    one, two, other = [made.render(dialogue(*turns)) for turns in ([(U, "a")], [(U, "b")], [(S, "s"), (U, "a")])]
    assert one.metadata == two.metadata
    assert [str(notice) for notice in one.metadata.notices] == ["default_prompt: THOUGHTS"]
    assert (
        one.metadata.stops,
        one.metadata.stop_token_ids,
        one.metadata.bos,
        one.metadata.bos_text,
        one.metadata.opened,
    ) == (("<eob>",), (), "none", "", "")
    assert other.metadata.stops == one.metadata.stops


def test_prompts_are_equal_and_hashed_by_their_content() -> None:
    made = template(PLAIN)
    one, same_again, other = [made.render(dialogue((U, text))) for text in ("a", "a", "b")]
    assert (one == same_again, one == other, hash(one) == hash(same_again)) == (True, False, True)
    assert Prompt("x") == Prompt("x", PromptMetadata())
    assert Prompt("x") != Prompt("x", PromptMetadata(bos="engine"))
    assert (Prompt("x").segments, Prompt("x").messages) == ((), None)


def test_no_wishes_is_what_a_dialogue_has() -> None:
    assert Dialogue(()).options is DEFAULT_OPTIONS
    assert RenderOptions() == DEFAULT_OPTIONS
    assert render_options() is render_options(tools=(), continue_final=False, variables={}) is DEFAULT_OPTIONS
    assert render_options(continue_final=True) == RenderOptions(continue_final=True)


def test_an_example_is_rendered_like_a_request() -> None:
    said = {"role": "user", "content": "q"}
    asked = read_chat({"model": "m", "messages": [said]}, request_id="r").dialogue
    assert asked is not None
    example = dialogue_of(Example((said,), prompt="q"))
    assert example == asked
    assert example.options is asked.options is DEFAULT_OPTIONS
    assert type(example.messages) is type(asked.messages) is PlainMessages
