"""Which columns of a file without ``output_column`` may be the answer's."""

from __future__ import annotations

from typing import Any

import pytest

from metatemplate.datasets.answer_columns import possible_answers
from metatemplate.datasets.validation import parse_prompt


def turns(*prompts: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "prompt": prompt} for role, prompt in prompts]


def messages(*contents: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in contents]}


PARTS = {"text": {"type": "text", "text": "{hint} {question}"}}
# name: (prompt_template, the columns with input_columns: [question])
TEMPLATES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "only inputs": ({"template": "Q: {question}"}, []),
    "the end of a text": ({"template": "Q: {question}\nA: {answer}"}, ["answer"]),
    "a text with a full stop": ({"template": "Q: {question}\nA: {answer}."}, ["answer"]),
    "a text with one column": ({"template": "{answer}"}, ["answer"]),
    "a token": ({"template": "{question} </T>!", "column_token_map": {"answer": "</T>"}}, ["answer"]),
    "the user's turn": ({"template": {"round": turns(("HUMAN", "Q: {question}\nA: {answer}"))}}, ["answer"]),
    "before the round": (
        {"template": {"begin": turns(("SYSTEM", "It is {answer}")), "round": turns(("HUMAN", "{question}"))}},
        ["answer"],
    ),
    "after the round": (
        {"template": {"round": turns(("HUMAN", "{question}")), "end": turns(("HUMAN", "{answer}"))}},
        ["answer"],
    ),
    "an earlier turn": (
        {"template": {"round": turns(("HUMAN", "{question}"), ("BOT", "{answer}"), ("HUMAN", "Explain."))}},
        ["answer"],
    ),
    "an earlier message": (
        messages(("user", "{question}"), ("assistant", "{answer}"), ("user", "Explain.")),
        ["answer"],
    ),
    "labels": ({"template": {"A": "{question} {a}", "B": "{question} {b}"}}, ["a", "b"]),
    "pieces of a tagged text": ({"template": {"round": [{"role": "HUMAN", "prompt_mm": PARTS}]}}, ["hint"]),
}


@pytest.mark.parametrize(("template", "columns"), TEMPLATES.values(), ids=TEMPLATES)
def test_every_column_that_is_no_input_may_be_the_answer(template: dict[str, Any], columns: list[str]) -> None:
    keys = {"prompt_template": template, "input_columns": ["question"]}
    assert possible_answers(parse_prompt(keys, name="p", rows=lambda name: ())) == columns
    named = {**keys, "output_column": columns[0] if columns else "answer"}
    assert not possible_answers(parse_prompt(named, name="p", rows=lambda name: ()))


# name: (file without input_columns, the columns)
WITHOUT_INPUTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "the end of a text": ({"prompt_template": {"template": "Q: {question}\nA: {answer}"}}, ["answer"]),
    "a text with one column": ({"prompt_template": {"template": "{question}"}}, []),
    "the model's turn": (
        {"prompt_template": messages(("user", "{question}"), ("assistant", "{answer}")), "fill": "opencompass"},
        ["answer"],
    ),
    "an earlier message": (
        {"prompt_template": messages(("assistant", "{answer}"), ("user", "{question}"))},
        [],
    ),
}


@pytest.mark.parametrize(("keys", "columns"), WITHOUT_INPUTS.values(), ids=WITHOUT_INPUTS)
def test_without_inputs_only_the_place_of_the_answer_counts(keys: dict[str, Any], columns: list[str]) -> None:
    assert possible_answers(parse_prompt(keys, name="p", rows=lambda name: ())) == columns
