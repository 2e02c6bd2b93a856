"""The outputs printed in the meta template documents, byte for byte as the released code gives them.

Where the documents print something else, the golden files follow the code:

- a line break after the meta begin is shown and never made (begin-end, generate, generate-whole);
- "end of conversation" is shown in reserved and fallback, before any meta `end` is defined;
- BOT's begin keeps its trailing space at the generate point (generate);
- the older document shows spaces after role begins and extra line breaks that its template does not hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from metatemplate.files.template import parse_spec
from metatemplate.templates.registry import build
from tests.metatemplate.templates.samples import BOT, HUMAN, SYSTEM, dialogue

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "d4"

SUMS = [("user", "1+1=?"), ("assistant", "2"), ("user", "2+2=?"), ("assistant", "4")]
ASKED = [("system", "Solve the following math questions"), *SUMS]
META = "Meta instruction: You are now a helpful and harmless AI assistant."

PLAIN: dict[str, Any] = {"round": [HUMAN, BOT]}
WITH_SYSTEM: dict[str, Any] = {**PLAIN, "reserved_roles": [SYSTEM]}
FRAMED: dict[str, Any] = {**WITH_SYSTEM, "begin": META, "end": "end of conversation"}

WHOLE = {  # golden file: (template, conversation); every turn closed, as perplexity sees it
    "rounds": (PLAIN, SUMS),
    "reserved": (WITH_SYSTEM, ASKED),
    "fallback": (PLAIN, ASKED),
    "begin-end": (FRAMED, ASKED),
    "generate-whole": (FRAMED, ASKED),
}


@pytest.mark.parametrize("name", WHOLE)
def test_the_document_prints_the_whole_conversation(name: str) -> None:
    raw, turns = WHOLE[name]
    spec = parse_spec({**raw, "turns": "opencompass"}, name=name)
    assert build(spec).render(dialogue(*turns, whole=True)).text == golden(name)


@pytest.mark.parametrize("turns", ["natural", "opencompass"])
def test_the_document_cuts_where_the_model_speaks(turns: str) -> None:
    spec = parse_spec({**FRAMED, "turns": turns}, name="generate")
    assert build(spec).render(dialogue(*ASKED[:-1])).text == golden("generate")


def test_without_a_meta_template_turns_are_joined_by_line_breaks() -> None:
    spec = parse_spec({"kind": "base"}, name="no-meta")
    assert build(spec).render(dialogue(*SUMS, whole=True)).text == golden("no-meta")


@pytest.mark.parametrize("turns", ["natural", "opencompass"])
def test_the_complete_example_speaks_its_default_prompt(turns: str) -> None:
    raw = {
        "begin": META,
        "round": [
            {"role": "HUMAN", "begin": "HUMAN: ", "end": "<eoh>\n"},
            {"role": "THOUGHTS", "begin": "THOUGHTS: ", "end": "<eot>\n", "prompt": "None"},
            {"role": "BOT", "begin": "BOT: ", "generate": True, "end": "<eob>\n"},
        ],
        "end": "end of conversion",
        "reserved_roles": [{"role": "SYSTEM", "begin": "SYSTEM: ", "end": "\n"}],
        "eos_token_id": 10000,
        "turns": turns,
    }
    prompt = build(parse_spec(raw, name="fields")).render(dialogue(*ASKED[:-1]))
    assert prompt.text == golden("fields")
    assert (prompt.metadata.stops, prompt.metadata.stop_token_ids) == (("<eob>",), (10000,))


@pytest.mark.parametrize("turns", ["natural", "opencompass"])
def test_the_older_document_speaks_three_default_prompts(turns: str) -> None:
    raw = {
        "begin": "meta instruction\nYou are an AI assistant.\n",
        "round": [
            {"role": "HUMAN", "begin": "<|HUMAN|>:", "end": "脷\n"},
            {"role": "THOUGHTS", "begin": "<|Inner Thoughts|>:", "end": "茔\n", "prompt": "None"},
            {"role": "COMMANDS", "begin": "<|Commands|>:", "end": "蝮\n", "prompt": "None"},
            {"role": "RESULTS", "begin": "<|Results|>:", "end": "兒\n", "prompt": "None"},
            {"role": "BOT", "begin": "<|MOSS|>:", "generate": True, "end": "氡\n"},
        ],
        "end": "end of conversion",
        "reserved_roles": [{"role": "SYSTEM", "begin": "<|SYSTEM|>: ", "end": "\n"}],
        "eos_token_id": 65605,
        "turns": turns,
    }
    prompt = build(parse_spec(raw, name="moss")).render(dialogue(("system", "Be brief."), ("user", "Hi")))
    assert prompt.text == (
        "meta instruction\nYou are an AI assistant.\n<|SYSTEM|>: Be brief.\n<|HUMAN|>:Hi脷\n"
        "<|Inner Thoughts|>:None茔\n<|Commands|>:None蝮\n<|Results|>:None兒\n<|MOSS|>:"
    )


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.txt").read_bytes().decode()
