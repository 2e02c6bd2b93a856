"""LazyLLM's prompters as a library: what the conformance cases do not reach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metatemplate.prompters.tokens import family, family_names
from tests.support.reference.lazyllm.errors import PrompterError
from tests.support.reference.lazyllm.legacy_prompter import LegacyPrompter
from tests.support.reference.lazyllm.modules import prompter_of
from tests.support.reference.lazyllm.names import tokens_for
from tests.support.reference.lazyllm.prompter import alpaca, chat, empty
from tests.support.reference.lazyllm.tool_calls import Extracted, FoundCall, ToolTokens, extract_calls


def test_callables_get_the_arguments_of_their_signature() -> None:
    calls: list[Any] = []

    def tools(query: Any, history: Any) -> list[Any]:
        calls.append((query, history))
        return [{"type": "function", "function": {"name": "f"}}]

    made = chat("x", tools=tools, skills=lambda: "SKILLS").bound(tokens_for("qwen"))
    body = made.generate_prompt("q", history=[["a", "b"]], format="openai")
    assert calls == [("q", [["a", "b"]])]
    assert body["tools"] == [{"type": "function", "function": {"name": "f"}}]
    assert body["messages"][0]["content"].endswith("SKILLS")


def test_a_hook_sees_and_changes_what_a_call_brings() -> None:
    from dataclasses import replace

    made = replace(chat("x"), hook=lambda given, history, tools, label: (f"{given}!", history, tools, "L"))
    assert made.generate_prompt("q") == chat("x").generate_prompt("q!", label="L")


def test_binding_a_model_changes_no_prompter() -> None:
    shared = chat("x")
    before = shared.generate_prompt("q")
    one, other = shared.bound(tokens_for("qwen")), shared.bound(tokens_for("internlm-7b"))
    assert one.generate_prompt("q") != other.generate_prompt("q")
    assert shared.generate_prompt("q") == before


def test_nothing_that_is_handed_in_is_changed() -> None:
    history = [{"role": "user", "content": "h"}]
    given = {"a": "1", "rest": [{"role": "user", "content": "q"}]}
    made = chat({"system": "{a}", "user": "U"})
    made.generate_prompt(given, history=history, format="openai")
    assert (given, history) == (
        {"a": "1", "rest": [{"role": "user", "content": "q"}]},
        [{"role": "user", "content": "h"}],
    )


def test_an_unknown_token_is_refused_in_lazyllms_words() -> None:
    with pytest.raises(PrompterError, match=r"TypeError: .* unexpected keyword argument 'bos'"):
        chat().bound({"bos": "x"})


@pytest.mark.parametrize(("given", "form"), [(None, "empty"), ("x", "chat"), ({"user": "x"}, "chat")])
def test_a_module_takes_several_things_for_a_prompter(given: Any, form: str) -> None:
    assert prompter_of(given).form == form


def test_a_module_takes_a_prompter_as_it_is_and_no_history_with_it() -> None:
    made = alpaca("x")
    assert prompter_of(made) is made
    with pytest.raises(PrompterError, match="AssertionError"):
        prompter_of(made, [["a", "b"]])


def test_every_family_has_tokens_that_bind() -> None:
    for name in family_names():
        assert chat().bound(family(name)).generate_prompt("q")


def test_the_older_prompter_reads_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompt.json"
    file.write_text(json.dumps({"prompt": "<{input}>", "response_split": ">"}), encoding="utf-8")
    made = LegacyPrompter.from_file(file)
    assert made.generate_prompt("q") == "<q>"
    assert made.get_response("<q>answer") == "answer"
    assert LegacyPrompter.empty().generate_prompt({"a": 1}) == {"a": 1}


def test_an_empty_prompter_gives_back_the_very_object() -> None:
    given = ["anything"]
    assert empty().generate_prompt(given) is given


TOKENS = ToolTokens("<tool>", "<args>", "</tool>")
ANSWERS: dict[str, tuple[str, ToolTokens, tuple[str, ...], Extracted]] = {
    "no call": ("hi", TOKENS, ("f",), Extracted("hi")),
    "two calls": (
        "Sure.<tool>f<args>{a: 1}</tool><tool>g</tool>",
        TOKENS,
        (),
        Extracted("Sure.", (FoundCall("f", {"a": 1}), FoundCall("g", {}))),
    ),
    "a string of JSON": ("<tool>f<args>'{\"a\": 1}'</tool>", TOKENS, (), Extracted("", (FoundCall("f", {"a": 1}),))),
    "an args token in a string": (
        "<tool>f<args>{'a': '<args>'}</tool>",
        TOKENS,
        (),
        Extracted("", (FoundCall("f", "{'a': '"),)),
    ),
    "raw text": ("<tool>f<args>oops</tool>", TOKENS, (), Extracted("", (FoundCall("f", "oops"),))),
    "a name on its own line": (
        'Well\nf\n{"a": 1}',
        ToolTokens(),
        ("f",),
        Extracted("Well", (FoundCall("f", '{"a": 1}'),)),
    ),
    "a stranger": ('{"name": "z"}', ToolTokens(), ("f",), Extracted('{"name": "z"}')),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_calls_are_read_out_of_an_answer(name: str) -> None:
    output, tokens, known, expected = ANSWERS[name]
    assert extract_calls(output, tokens, known) == expected


def test_a_system_message_without_content_is_refused_in_lazyllms_words() -> None:
    with pytest.raises(PrompterError, match="KeyError: 'content'"):
        chat("").bound(tokens_for("qwen")).generate_prompt("x", history=[{"role": "system"}], format="anthropic")
