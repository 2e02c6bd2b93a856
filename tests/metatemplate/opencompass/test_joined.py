"""``kind: base``: the messages joined by line breaks, as OpenCompass prompts a model without a meta template."""

from __future__ import annotations

from typing import Any

import pytest

from metatemplate.errors import InputError
from metatemplate.files.template import SpecError, parse_spec
from metatemplate.values.dialogue import Dialogue
from metatemplate.values.prompt import Notice
from tests.metatemplate.templates.samples import dialogue, message, template

BASE: dict[str, Any] = {"kind": "base"}
U, A, S = "user", "assistant", "system"

PROMPTS: dict[str, tuple[Dialogue, str]] = {
    "one message": (dialogue((U, "Question: 1+1=?\nAnswer:")), "Question: 1+1=?\nAnswer:"),
    "turns": (dialogue((U, "1+1=?"), (A, "2"), (U, "2+2=?"), (A, "4")), "1+1=?\n2\n2+2=?\n4"),
    "a system message": (dialogue((S, "Solve."), (U, "1+1=?")), "Solve.\n1+1=?"),
    "any role": (dialogue(("critic", "No."), (U, "Why?")), "No.\nWhy?"),
    "the begin of an answer": (dialogue((U, "1+1=?"), (A, "Answer: "), continue_final=True), "1+1=?\nAnswer: "),
    "an empty message": (dialogue((U, "q"), (A, ""), (U, "r")), "q\nr"),
    "an empty first message": (dialogue((U, ""), (A, "a")), "\na"),
    "text parts": (Dialogue((message(U, [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),)), "ab"),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_the_texts_are_joined_by_line_breaks(name: str) -> None:
    said, expected = PROMPTS[name]
    prompt = template(BASE).render(said)
    assert prompt.text == expected == "".join([segment.text for segment in prompt.segments or ()])
    assert prompt.metadata.stops == ()


def test_the_file_has_the_stops() -> None:
    prompt = template(BASE, stop="\nQuestion:", eos_token_id=2).render(dialogue((U, "q")))
    assert (prompt.metadata.stops, prompt.metadata.stop_token_ids) == (("\nQuestion:",), (2,))


def test_a_field_that_is_not_in_the_prompt_gives_a_notice() -> None:
    prompt = template(BASE).render(Dialogue((message(U, "q", name="Ann"),)))
    assert prompt.metadata.notices == (Notice("ignored_field", "messages[0].name"),)


REFUSED = {
    "tools": (dialogue((U, "q"), tools=({"type": "function", "function": {"name": "f"}},)), "tools"),
    "media": (Dialogue((message(U, [{"type": "image_url"}]),)), "messages[0].content[0]"),
    "variables": (dialogue((U, "q"), variables={"a": "b"}), "gateway.variables"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_base_model_cannot_have_is_refused(name: str) -> None:
    said, param = REFUSED[name]
    with pytest.raises(InputError) as caught:
        template(BASE).render(said)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("bos", "text", "use engine or none"), ("round", [], "unknown key"), ("begin", "<s>", "unknown key")],
)
def test_a_key_without_meaning_is_refused(key: str, value: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        parse_spec({**BASE, key: value}, name="x")
