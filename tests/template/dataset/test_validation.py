"""Mistakes in prompt files."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.template.dataset.validation import parse_prompt
from gateway.template.validation.problems import SpecError

TEXT: dict[str, Any] = {"prompt_template": {"template": "{a}"}}
ICE = {"ice_template": {"template": "{a}"}}
ROWS = ({"a": "1"}, {"a": "2"})
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": (
        {**TEXT, "retreiver": {}},
        "retreiver: unknown key 'retreiver' (did you mean \"retriever\"?)",
    ),
    "no template": ({"output_column": "a"}, "prompt_template: a prompt file needs prompt_template or ice_template"),
    "two kinds of template": (
        {"prompt_template": {"template": "x", "messages": [{"role": "user", "content": "x"}]}},
        "prompt_template: needs either template (a text, a dialogue or labels) or messages",
    ),
    "a dialogue without round": (
        {"prompt_template": {"template": {"begin": ["x"]}}},
        "prompt_template: a dialogue needs round: the list of its turns",
    ),
    "no place for the examples": (
        {**TEXT, **ICE, "retriever": {"kind": "fixed", "ids": [0]}, "train": ROWS},
        "prompt_template: prompt_template requires an ice_token, which marks the place of the examples",
    ),
    "a place that is not in the text": (
        {"prompt_template": {"template": "{a}", "ice_token": "</E>"}},
        "prompt_template: '{a}' does not contain the ice_token '</E>'",
    ),
    "rows that are never used": (
        {**TEXT, "train": ROWS},
        "train: has no effect without a retriever: add retriever: {kind: fixed, ids: [0, 1]}",
    ),
    "a retriever without a template": (
        {**TEXT, "retriever": {"kind": "fixed", "ids": [0]}, "train": ROWS},
        "retriever: needs ice_template, which writes the examples",
    ),
    "a row that does not exist": (
        {**TEXT, **ICE, "retriever": {"kind": "fixed", "ids": [2]}, "train": ROWS},
        "retriever.ids: names row 2, but train has 2 rows, counted from 0",
    ),
    "more examples than rows": (
        {**TEXT, **ICE, "retriever": {"kind": "random", "count": 3}, "train": ROWS},
        "retriever.count: is 3, but train has 2 rows",
    ),
    "other columns in several turns": (
        {"prompt_template": {"template": {"round": []}}, "multi_turn": True, "input_columns": ["q"]},
        "multi_turn: allows only the columns question and answer, which are lists; remove others",
    ),
    "a role that messages do not have": (
        {"prompt_template": {"messages": [{"role": "HUMAN", "content": "x"}]}},
        "prompt_template: a message's role must be one of system, user, assistant, not 'HUMAN'",
    ),
    "a text among messages": (
        {"prompt_template": {"messages": ["</E>"]}},
        "prompt_template: '</E>' is neither a message nor the ice_token: write {role: …, content: …}",
    ),
    "a section with a wrong name": (
        {"prompt_template": {"template": {"rounds": [{"role": "HUMAN", "prompt": "x"}]}}},
        "prompt_template.template: the templates of labels must all be texts, or all dialogues with round; "
        "'rounds' is not a section: write begin, round or end",
    ),
    "a key of a turn with a wrong name": (
        {"prompt_template": {"template": {"round": [{"role": "HUMAN", "promt": "x"}]}}},
        "prompt_template.template.round.0.promt: unknown key 'promt' (did you mean \"prompt\"?)",
    ),
    "labels of two forms": (
        {"prompt_template": {"template": {"A": "x", "B": {"round": []}}}},
        "prompt_template.template: the templates of labels must all be texts, or all dialogues with round",
    ),
    "two labels that are written alike": (
        {"prompt_template": {"template": {1: "x", "1": "y"}}},
        'prompt_template: two labels have the same text, such as 1 and "1"; give each label a different name',
    ),
    "an answer column with a wrong name": (
        {
            "prompt_template": {"template": "{question}{answer}"},
            "input_columns": ["question"],
            "output_column": "answr",
        },
        "output_column: no template has {answr}, and the template's {answer} is not a column; use the same name",
    ),
    "the model's turn without an answer column": (
        {"prompt_template": {"template": {"round": [{"role": "BOT", "prompt": "A: {answer}"}]}}},
        "output_column: is missing, and the model answers where the template has {answer}; write output_column: "
        "answer, so that its value is left out, or list the column under input_columns if it is not the answer",
    ),
    "the model's message without an answer column": (
        {"prompt_template": {"messages": [{"role": "assistant", "content": "{answer}"}]}},
        "output_column: is missing, and the model answers where the template has {answer}",
    ),
    "a text whose examples end in the same column": (
        {
            "ice_template": {"template": "{q}\n{a}"},
            "prompt_template": {"template": "</E>{q}\n{a}", "ice_token": "</E>"},
        },
        "output_column: is missing, and the model answers where the template has {a}",
    ),
    "several turns of a text": (
        {**TEXT, "multi_turn": True},
        "multi_turn: needs a template that is a dialogue with the key round",
    ),
    "a message without content": (
        {"prompt_template": {"messages": [{"role": "user"}]}},
        "prompt_template: a message needs content: a text, or a list of parts",
    ),
    "a content part without its value": (
        {
            "prompt_template": {
                "template": {"round": [{"role": "HUMAN", "prompt_mm": {"image": {"type": "image_url", "image": "x"}}}]}
            }
        },
        "prompt_template.template.round.0.prompt_mm.image: must be a content part, such as "
        "{type: image_url, image_url: {url: …}}",
    ),
    "an example that comes out differently": (
        {**TEXT, "examples": [{"variables": {"a": "1"}, "prompt": "2"}]},
        "examples.0.prompt: the rendered prompt differs from the example\n  expected '2'\n  got      '1'",
    ),
    "an example without its variable": (
        {**TEXT, "input_columns": ["a"], "examples": [{"prompt": "1"}]},
        "examples.0.variables: this example cannot be rendered: prompt p needs the variables a; the request lacks a",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_named_with_its_place(case: str) -> None:
    file, message = MISTAKES[case]
    with pytest.raises(SpecError) as caught:
        parse_prompt(file, name="p", rows=lambda name: ())
    assert message in caught.value.message


def test_rows_come_from_a_file_too() -> None:
    file = {**TEXT, **ICE, "train_file": "rows.jsonl", "retriever": {"kind": "fixed", "ids": [1]}}
    file["prompt_template"] = {"template": "</E>{a}", "ice_token": "</E>"}
    assert parse_prompt(file, name="p", rows=lambda name: ROWS if name == "rows.jsonl" else ()).train == ROWS
