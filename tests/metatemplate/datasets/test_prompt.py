"""Dataset prompts: what a row of a dataset becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from metatemplate.datasets.prompt import DatasetPrompt
from metatemplate.datasets.prompt_list import without_markers
from metatemplate.datasets.validation import parse_prompt
from metatemplate.errors import InvalidInput


def turn(role: str, prompt: str) -> dict[str, str]:
    return {"role": role, "prompt": prompt}


def made(file: dict[str, Any]) -> DatasetPrompt:
    return DatasetPrompt(parse_prompt(file, name="p", rows=lambda name: ()))


Case = dict[str, Any]
TABLES: Any = yaml.safe_load(Path(__file__).with_name("prompts.yaml").read_text(encoding="utf-8"))
SAMPLES, GENERATIONS, ANSWERS, REFUSED = (TABLES[key] for key in ("samples", "generations", "answers", "refused"))
HUMAN, TURNS, SEVERAL = (SAMPLES[name] for name in ("human", "turns", "several"))


@pytest.mark.parametrize("case", GENERATIONS.values(), ids=GENERATIONS)
def test_a_row_becomes_a_prompt(case: Case) -> None:
    assert without_markers(made(case["file"]).generation(case["variables"])) == case["prompt"]


def test_each_label_gets_its_own_prompt_with_the_answer() -> None:
    labels = {label: {"round": [HUMAN, turn("BOT", f"{{{label}}}")]} for label in ("A", "B")}
    prompt = made({"prompt_template": {"template": labels}, "output_column": "answer"})
    candidates = prompt.candidates({"question": "1+1=?", "A": "2", "B": "3", "answer": "A"})
    assert {label: without_markers(items) for label, items in candidates.items()} == {
        "A": [turn("HUMAN", "1+1=?"), turn("BOT", "2")],
        "B": [turn("HUMAN", "1+1=?"), turn("BOT", "3")],
    }


def test_the_separator_stays_in_the_examples_of_a_scored_prompt() -> None:
    prompt = made(
        {
            "ice_template": {"template": "{question}={answer}"},
            "prompt_template": {
                "template": {label: f"</E>x</S>{label}" for label in "AB"},
                "ice_token": "</E>",
                "sep_token": "</S>",
            },
            "retriever": {"kind": "fixed", "ids": [0]},
            "train": [{"question": "a</S>b", "answer": "A"}],
            "output_column": "answer",
            "fill": "opencompass",
        }
    )
    assert prompt.candidates({}) == {"A": "a</S>b=A\nxA", "B": "a</S>b=A\nxB"}


@pytest.mark.parametrize("case", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_inside_the_prompt_is_known(case: Case) -> None:
    assert made(case["file"]).answer_column_in_prompt(case["variables"]) == case["column"]


def test_the_sections_around_several_turns_never_list_the_answers() -> None:
    file = {**SEVERAL, "prompt_template": {"template": {"begin": ["{question} {answer}"], **TURNS}}}
    requests = made(file).turns({"question": ["1+1=?"], "answer": ["2"]}, "every")
    assert without_markers(next(requests)) == ["['1+1=?'] ", turn("HUMAN", "1+1=?")]


def test_the_rows_of_a_request_replace_the_rows_of_the_file() -> None:
    file = GENERATIONS["examples in a text"]["file"]
    text = made(file).generation({"question": "1+1=?"}, [{"question": "5+5=?", "answer": "10"}])
    assert text == "Solve the following questions.\n5+5=?\n10\n1+1=?\n"


def test_random_examples_depend_on_the_seed_and_the_question_only() -> None:
    file = {
        "ice_template": {"template": "{question}"},
        "prompt_template": {"template": "</E>", "ice_token": "</E>"},
        "train": [{"question": str(number)} for number in range(50)],
    }
    first, other = (made({**file, "retriever": {"kind": "random", "count": 5, "seed": seed}}) for seed in (1, 2))
    assert first.generation({"question": "q"}) == first.generation({"question": "q"})
    assert len(set(str(first.generation({"question": "q"})).split())) == 5
    assert (
        len(
            {
                first.generation({"question": "q"}),
                first.generation({"question": "r"}),
                other.generation({"question": "q"}),
            }
        )
        == 3
    )


DIALOGUE = {"prompt_template": {"template": TURNS}, "multi_turn": True, "output_column": "answer"}
SUMS = {"question": ["1+1=?", "2+2=?", "3+3=?"], "answer": ["2", "4", "6"]}
FIRST, SECOND, THIRD = (turn("HUMAN", question) for question in SUMS["question"])
TURN_PROMPTS = {  # mode: the prompt of each request
    "every": [
        [FIRST],
        [FIRST, turn("BOT", "answer1"), SECOND],
        [FIRST, turn("BOT", "answer1"), SECOND, turn("BOT", "answer2"), THIRD],
    ],
    "every_with_gt": [
        [FIRST],
        [FIRST, turn("BOT", "2"), SECOND],
        [FIRST, turn("BOT", "2"), SECOND, turn("BOT", "4"), THIRD],
    ],
    "last": [[FIRST, turn("BOT", "2"), SECOND, turn("BOT", "4"), THIRD]],
}


@pytest.mark.parametrize("mode", TURN_PROMPTS)
def test_each_turn_has_the_history_of_its_mode(mode: Any) -> None:
    requests: Any = made(DIALOGUE).turns(SUMS, mode)
    prompts: list[Any] = []
    answer = None
    try:
        while True:
            prompts.append(without_markers(requests.send(answer)))
            answer = f"answer{len(prompts)}"
    except StopIteration:
        assert prompts == TURN_PROMPTS[mode]


def test_the_answers_are_not_needed_where_the_model_gives_them() -> None:
    requests = made(DIALOGUE).turns({"question": ["1+1=?", "2+2=?"]}, "every")
    next(requests)
    assert without_markers(requests.send("2")) == [FIRST, turn("BOT", "2"), SECOND]


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_variables_that_do_not_fit_are_refused(case: Case) -> None:
    with pytest.raises(InvalidInput) as caught:
        made(case["file"]).generation(case["variables"], case["examples"])
    assert caught.value.message == case["says"]


def test_a_prompt_without_labels_makes_no_candidates() -> None:
    with pytest.raises(InvalidInput, match="prompt p has no labels"):
        made({"prompt_template": {"template": "{a}"}}).candidates({"a": "1"})


def test_columns_without_a_variable_are_known() -> None:
    prompt = made({"prompt_template": {"template": "{a} {b} {c-d} {answer}"}, "output_column": "answer"})
    assert prompt.unfilled({"a": "1"}) == ["b"]
