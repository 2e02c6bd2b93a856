"""Dataset prompts: what a row of a dataset becomes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.errors import InvalidValue
from gateway.template.dataset.prompt import DatasetPrompt
from gateway.template.dataset.prompt_list import without_markers
from gateway.template.dataset.validation import parse_prompt

HUMAN, BOT = {"role": "HUMAN", "prompt": "{question}"}, {"role": "BOT", "prompt": "{answer}"}
SYSTEM = {"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": "Solve the following questions."}
TURNS = {"round": [HUMAN, BOT]}
TRAIN = [{"question": "2+2=?", "answer": "4"}, {"question": "3+3=?", "answer": "6"}]
FIXED = {"retriever": {"kind": "fixed", "ids": [0, 1]}, "train": TRAIN, "output_column": "answer"}
STRING = "Solve the following questions.\n</E>{question}\n{answer}"


SUMS_WITH_COLUMN = {"question": ["{answer}"], "answer": ["2"]}


def turn(role: str, prompt: str) -> dict[str, str]:
    return {"role": role, "prompt": prompt}


def made(file: dict[str, Any]) -> DatasetPrompt:
    return DatasetPrompt(parse_prompt(file, name="p", rows=lambda name: ()))


# name: (file, variables, prompt)
GENERATIONS: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "a text keeps unknown columns and masks the answer": (
        {"prompt_template": {"template": "{anything}\nQuestion: {question}\nAnswer: {answer}"},
         "output_column": "answer"},
        {"question": "1+1=?", "answer": "2"},
        "{anything}\nQuestion: 1+1=?\nAnswer: ",
    ),
    "another text in the place of the answer": (
        {"prompt_template": {"template": "{question}{answer}"}, "output_column": "answer",
         "gen_field_replace_token": "?"},
        {"question": "1+1="},
        "1+1=?",
    ),
    "a value with columns is not read again": (
        {"prompt_template": {"template": "{a}{b}"}},
        {"a": "{b}", "b": "{a}"},
        "{b}{a}",
    ),
    "OpenCompass reads a value again": (
        {"prompt_template": {"template": "{a}{b}"}, "fill": "opencompass"},
        {"a": "{b}", "b": "x"},
        "xx",
    ),
    "values that are no strings": (
        {"prompt_template": {"template": "{a} {b} {c} {d}"}},
        {"a": 1, "b": True, "c": None, "d": ["x", {"k": 1.5}]},
        "1 True None ['x', {'k': 1.5}]",
    ),
    "only exact names in braces are columns": (
        {"prompt_template": {"template": "{{a}} {a!r} { a } {} {a"}},
        {"a": "1"},
        "{1} {a!r} { a } {} {a",
    ),
    "tokens of columns": (
        {"prompt_template": {"template": "Q</Q> {b}", "column_token_map": {"a": "</Q>"}}},
        {"a": "{b}", "b": "</Q>"},
        "Q{b} </Q>",
    ),
    "a dialogue": (
        {"prompt_template": {"template": {"begin": [SYSTEM], **TURNS}}, "output_column": "answer"},
        {"question": "1+1=?", "answer": "2"},
        [SYSTEM, turn("HUMAN", "1+1=?"), turn("BOT", "")],
    ),
    "a dialogue with an end": (
        {"prompt_template": {"template": {**TURNS, "end": ["Bye."]}}, "input_columns": ["question", "answer"]},
        {"question": "1+1=?", "answer": "2"},
        [turn("HUMAN", "1+1=?"), turn("BOT", "2"), "Bye."],
    ),
    "examples in a text": (
        {**FIXED, "ice_template": {"template": "{question}\n{answer}"},
         "prompt_template": {"template": STRING, "ice_token": "</E>"}},
        {"question": "1+1=?", "answer": "2"},
        "Solve the following questions.\n2+2=?\n4\n3+3=?\n6\n1+1=?\n",
    ),
    "examples between other separators": (
        {**FIXED, "ice_template": {"template": "{question}{answer}"}, "ice_separator": ";", "ice_eos_token": "|",
         "prompt_template": {"template": "</E>{question}", "ice_token": "</E>"}},
        {"question": "1+1=?"},
        "2+2=?4;3+3=?6|1+1=?",
    ),
    "examples in a dialogue": (
        {**FIXED, "ice_template": {"template": TURNS},
         "prompt_template": {"template": {"begin": [SYSTEM, "</E>"], **TURNS}, "ice_token": "</E>"}},
        {"question": "1+1=?", "answer": "2"},
        [SYSTEM, turn("HUMAN", "2+2=?"), turn("BOT", "4"), turn("HUMAN", "3+3=?"), turn("BOT", "6"),
         turn("HUMAN", "1+1=?"), turn("BOT", "")],
    ),
    "columns in an example are not filled from the question": (
        {**FIXED, "train": [{"question": "{question}", "answer": "a"}] * 2,
         "ice_template": {"template": "{question}"},
         "prompt_template": {"template": "</E>{question}", "ice_token": "</E>"}},
        {"question": "q"},
        "{question}\n{question}\nq",
    ),
    "the place of the examples in a value stays text": (
        {**FIXED, "ice_template": {"template": "{question}"},
         "prompt_template": {"template": "</E>{question}", "ice_token": "</E>"}},
        {"question": "</E>"},
        "2+2=?\n3+3=?\n</E>",
    ),
    "the abbreviated form": (
        {**FIXED, "ice_template": {"template": "</E>Q: {question}\nA: {answer}", "ice_token": "</E>"}},
        {"question": "1+1=?", "answer": "2"},
        "Q: 2+2=?\nA: 4\nQ: 3+3=?\nA: 6\nQ: 1+1=?\nA: ",
    ),
    "the abbreviated form without examples needs no place for them": (
        {"ice_template": {"template": "Q: {question}\nA: {answer}"}, "output_column": "answer"},
        {"question": "1+1=?", "answer": "2"},
        "Q: 1+1=?\nA: ",
    ),
    "a separator of a scored prompt is left out": (
        {"prompt_template": {"template": "{question}</S>{answer}", "sep_token": "</S>"}},
        {"question": "q", "answer": "</S>"},
        "q</S>",
    ),
    "messages": (
        {"prompt_template": {"ice_token": "</E>", "messages": [
            {"role": "system", "content": "Solve."}, "</E>", {"expand_column": "history"},
            {"role": "user", "content": [{"type": "text", "text": "{question}"},
                                         {"type": "image_url", "image_url": {"url": "{image}"}}]}]}},
        {"question": "What?", "image": "https://a/b.png", "history": [{"role": "user", "content": "{question}"}]},
        [{"role": "system", "content": "Solve."}, {"role": "user", "content": "{question}"},
         {"role": "user", "content": [{"type": "text", "text": "What?"},
                                      {"type": "image_url", "image_url": {"url": "https://a/b.png"}}]}],
    ),
    "the answer is left out of messages": (
        {"prompt_template": {"messages": [{"role": "user", "content": "{question} {answer}"},
                                          {"role": "assistant", "content": "A: {answer}"}]},
         "output_column": "answer", "gen_field_replace_token": "?"},
        {"question": "{answer}", "answer": "2"},
        [{"role": "user", "content": "{answer} ?"}, {"role": "assistant", "content": "A: ?"}],
    ),
    "OpenCompass writes the answer into messages": (
        {"prompt_template": {"messages": [{"role": "user", "content": "Q: {question} A: {answer}"}]},
         "output_column": "answer", "fill": "opencompass"},
        {"question": "x {answer}", "answer": "y"},
        [{"role": "user", "content": "Q: x y A: y"}],
    ),
    "OpenCompass fills no content parts": (
        {"prompt_template": {"messages": [{"role": "user", "content": [{"type": "text", "text": "{question}"}]}]},
         "fill": "opencompass"},
        {"question": "x"},
        [{"role": "user", "content": [{"type": "text", "text": "{question}"}]}],
    ),
    "the end of the examples without examples": (
        {"prompt_template": {"template": "</E>Q: {question}", "ice_token": "</E>"}, "ice_eos_token": "@@"},
        {"question": "x"},
        "@@Q: x",
    ),
    "the separator of a scored prompt is left out of the examples of a generation": (
        {**FIXED, "train": [{"question": "a</S>b", "answer": "c"}] * 2, "ice_template": {"template": "{question}"},
         "prompt_template": {"template": "</E>{question}", "ice_token": "</E>", "sep_token": "</S>"},
         "fill": "opencompass"},
        {"question": "x"},
        "ab\nab\nx",
    ),
    "the answer is left out of the turns beside content parts": (
        {"prompt_template": {"template": {"round": [
            {"role": "HUMAN", "prompt_mm": {"text": {"type": "text", "text": "{question} {answer}"}}},
            BOT]}}, "output_column": "answer"},
        {"content": "<AIS_TEXT_START>What?<AIS_CONTENT_TAG>", "answer": "2"},
        [{"role": "HUMAN", "prompt_mm": [{"type": "text", "text": "What? "}]}, turn("BOT", "")],
    ),
    "examples that are messages": (
        {**FIXED, "ice_template": {"messages": [{"role": "user", "content": "{question}"},
                                                {"role": "assistant", "content": "{answer}"}]},
         "prompt_template": {"ice_token": "</E>", "messages": ["</E>", {"role": "user", "content": "{question}"}]}},
        {"question": "1+1=?"},
        [{"role": "user", "content": "2+2=?"}, {"role": "assistant", "content": "4"},
         {"role": "user", "content": "3+3=?"}, {"role": "assistant", "content": "6"},
         {"role": "user", "content": "1+1=?"}],
    ),
    "content parts from tagged text": (
        {"prompt_template": {"template": {"round": [{"role": "HUMAN", "prompt_mm": {
            "text": {"type": "text", "text": "{anything}\nQuestion: {question}"},
            "image": {"type": "image_url", "image_url": {"url": "{image}"}},
            "audio": {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,{audio}"}}}}]}}},
        {"anything": "blabla", "question": "<AIS_TEXT_START>What is this?<AIS_CONTENT_TAG>"
         "<AIS_IMAGE_START>https://a/b.png<AIS_CONTENT_TAG><AIS_AUDIO_START>QUJD<AIS_CONTENT_TAG>"},
        [{"role": "HUMAN", "prompt_mm": [
            {"type": "text", "text": "blabla\nQuestion: What is this?"},
            {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
            {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,QUJD"}}]}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GENERATIONS)
def test_a_row_becomes_a_prompt(case: str) -> None:
    file, variables, expected = GENERATIONS[case]
    assert without_markers(made(file).generation(variables)) == expected


def test_each_label_gets_its_own_prompt_with_the_answer() -> None:
    labels = {label: {"round": [HUMAN, turn("BOT", f"{{{label}}}")]} for label in ("A", "B")}
    prompt = made({"prompt_template": {"template": labels}, "output_column": "answer"})
    candidates = prompt.candidates({"question": "1+1=?", "A": "2", "B": "3", "answer": "A"})
    assert {label: without_markers(items) for label, items in candidates.items()} == {
        "A": [turn("HUMAN", "1+1=?"), turn("BOT", "2")],
        "B": [turn("HUMAN", "1+1=?"), turn("BOT", "3")],
    }


def test_the_separator_stays_in_the_examples_of_a_scored_prompt() -> None:
    prompt = made({
        "ice_template": {"template": "{question}={answer}"},
        "prompt_template": {"template": {label: f"</E>x</S>{label}" for label in "AB"}, "ice_token": "</E>",
                            "sep_token": "</S>"},
        "retriever": {"kind": "fixed", "ids": [0]}, "train": [{"question": "a</S>b", "answer": "A"}],
        "output_column": "answer", "fill": "opencompass",
    })  # fmt: skip
    assert prompt.candidates({}) == {"A": "a</S>b=A\nxA", "B": "a</S>b=A\nxB"}


MESSAGES = {"prompt_template": {"messages": [{"role": "user", "content": "{question}"}]}, "output_column": "answer"}
LABELS = {
    "prompt_template": {"template": {label: f"{{question}} {label}" for label in "AB"}},
    "output_column": "answer",
}
SEVERAL = {"prompt_template": {"template": TURNS}, "output_column": "answer", "multi_turn": True}
EXACT = {"fill": "opencompass"}
INPUT = {"input_columns": ["question"]}
QUESTION = {"prompt_template": {"template": "Q: {question}"}, **INPUT}
ONE_ROUND = {"round": [turn("HUMAN", "{question}"), turn("BOT", "")]}
FEW_SHOT = {"ice_template": {"template": "{question}={answer}."}, "retriever": {"kind": "fixed", "ids": [0]},
            "prompt_template": {"template": "</E>{question}", "ice_token": "</E>"}, **INPUT}  # fmt: skip
GOLD = {"question": "2+2?", "answer": "GOLD42"}
# name: (file, variables, the column whose value may be in the prompt)
SHOWN_ANSWERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "messages": (MESSAGES, {"question": "{answer}", "answer": "2"}, ""),
    "a value of messages": ({**MESSAGES, **EXACT}, {"question": "{answer}", "answer": "2"}, "answer"),
    "messages without the answer": ({**MESSAGES, **EXACT}, {"question": "{answer}"}, ""),
    "messages of a plain value": ({**MESSAGES, **EXACT}, {"question": "1+1=?", "answer": "2"}, ""),
    "a text masks the answer inside values": (
        {"prompt_template": {"template": "{question}"}, "output_column": "answer", **EXACT},
        {"question": "{answer}", "answer": "2"}, "",
    ),
    "labels": (LABELS, {"question": "{answer}", "answer": "A"}, ""),
    "a value of labels": ({**LABELS, **EXACT}, {"question": "{answer}", "answer": "A"}, "answer"),
    "labels with the answer": (
        {"prompt_template": {"template": {"A": "{answer}"}}, "output_column": "answer"}, {"answer": "A"}, "answer",
    ),
    "a token of the answer": (
        {"prompt_template": {"template": {"A": "</T>"}, "column_token_map": {"answer": "</T>"}},
         "output_column": "answer"}, {"answer": "A"}, "answer",
    ),
    "several turns": (SEVERAL, SUMS_WITH_COLUMN, ""),
    "a value of several turns": ({**SEVERAL, **EXACT}, SUMS_WITH_COLUMN, "answer"),
    "no key names the answer": (
        {"prompt_template": {"template": "Q: {question}\nA: {answer}"}}, {"question": "1", "answer": "2"}, "answer",
    ),
    "no key names the answer, which is not sent": (
        {"prompt_template": {"template": "Q: {question}\nA: {answer}"}}, {"question": "1"}, "",
    ),
    "an input at the end": (
        {"prompt_template": {"template": "{language}: {text}"}, "input_columns": ["language", "text"]},
        {"language": "German", "text": "two"}, "",
    ),
    "a text that ends after the answer": (
        {"prompt_template": {"template": "Q: {question}\nA: {answer}."}, **INPUT}, GOLD, "answer",
    ),
    "an answer that is not sent": (
        {"prompt_template": {"template": "Q: {question}\nA: {answer}."}, **INPUT}, {"question": "2+2?"}, "",
    ),
    "the answer in the user's turn": (
        {"prompt_template": {"template": {"round": [turn("HUMAN", "Q: {question}\nA: {answer}")]}}, **INPUT},
        GOLD, "answer",
    ),
    "the answer before the round": (
        {"prompt_template": {"template": {"begin": [turn("SYSTEM", "The answer is {answer}")], **ONE_ROUND}}, **INPUT},
        GOLD, "answer",
    ),
    "the answer in an earlier turn": (
        {"prompt_template": {"template": {"round": [
            turn("HUMAN", "{question}"), turn("BOT", "{answer}"), turn("HUMAN", "Explain.")]}}, **INPUT},
        GOLD, "answer",
    ),
    "the answer in an earlier message": (
        {"prompt_template": {"messages": [
            {"role": "user", "content": "{question}"}, {"role": "assistant", "content": "{answer}"},
            {"role": "user", "content": "Explain."}]}, **INPUT},
        GOLD, "answer",
    ),
    "the answer's token": (
        {"prompt_template": {"template": "Q: {question} </T>.", "column_token_map": {"answer": "</T>"}}, **INPUT},
        GOLD, "answer",
    ),
    "the answer in a prompt of labels": (
        {"prompt_template": {"template": {"A": "{question} {answer} A"}}, **INPUT}, GOLD, "answer",
    ),
    "a value names the answer": ({**QUESTION, **EXACT}, {"question": "x {answer}", "answer": "GOLD42"}, "answer"),
    "a value of messages names the answer": (
        {"prompt_template": MESSAGES["prompt_template"], **INPUT, **EXACT},
        {"question": "x {answer}", "answer": "GOLD42"}, "answer",
    ),
    "a value names the answer, with fill: once": (QUESTION, {"question": "x {answer}", "answer": "GOLD42"}, ""),
    "a value names an answer that is not sent": ({**QUESTION, **EXACT}, {"question": "x {answer}"}, ""),
    "a value names itself or an input": (
        {"prompt_template": {"template": "{question}{topic}"}, "input_columns": ["question", "topic"], **EXACT},
        {"question": "{question} {topic}", "topic": "{question}"}, "",
    ),
    "an example names the answer": (
        {**FEW_SHOT, **EXACT, "train": [{"question": "{answer}", "answer": "1"}]}, GOLD, "answer",
    ),
    "an example lacks the answer": ({**FEW_SHOT, **EXACT, "train": [{"question": "1"}]}, GOLD, "answer"),
    "an example with its own answer": ({**FEW_SHOT, **EXACT, "train": [{"question": "1", "answer": "1"}]}, GOLD, ""),
    "a piece of a tagged text": (
        {"prompt_template": {"template": {"round": [{"role": "HUMAN", "prompt_mm": {
            "text": {"type": "text", "text": "{question}"}}}]}}, "input_columns": ["content"]},
        {"content": "<AIS_TEXT_START>2+2?<AIS_CONTENT_TAG>", "question": "2+2?"}, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SHOWN_ANSWERS)
def test_an_answer_inside_the_prompt_is_known(case: str) -> None:
    file, variables, column = SHOWN_ANSWERS[case]
    assert made(file).answer_column_in_prompt(variables) == column


def test_the_sections_around_several_turns_never_list_the_answers() -> None:
    file = {**SEVERAL, "prompt_template": {"template": {"begin": ["{question} {answer}"], **TURNS}}}
    requests = made(file).turns({"question": ["1+1=?"], "answer": ["2"]}, "every")
    assert without_markers(next(requests)) == ["['1+1=?'] ", turn("HUMAN", "1+1=?")]


def test_the_rows_of_a_request_replace_the_rows_of_the_file() -> None:
    file = GENERATIONS["examples in a text"][0]
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
    assert len({first.generation({"question": "q"}), first.generation({"question": "r"}),
                other.generation({"question": "q"})}) == 3  # fmt: skip


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


# name: (file, variables, examples, message)
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], Any, str]] = {
    "a variable is missing": (
        {"prompt_template": {"template": "{a}{b}"}, "input_columns": ["a", "b"]}, {"a": "1"}, None,
        "prompt p needs the variables a, b; the request lacks b",
    ),
    "a variable beside tagged text is missing": (
        {"input_columns": ["question", "image"], "prompt_template": {"template": {
            "begin": [{"role": "SYSTEM", "prompt": "{question}"}], "round": [{"role": "HUMAN", "prompt_mm": {
                "image": {"type": "image_url", "image_url": {"url": "{image}"}}}}]}}},
        {"content": "<AIS_IMAGE_START>https://a/b.png<AIS_CONTENT_TAG>"}, None,
        "prompt p needs the variables question, image; the request lacks question",
    ),
    "examples without a place": (
        {"prompt_template": {"template": "{a}"}, "ice_template": {"template": "{a}"}}, {"a": "1"}, [{"a": "2"}],
        "the template has no place for examples: write ice_token, or leave the examples out",
    ),
    "examples without a template": (
        {"prompt_template": {"template": "</E>{a}", "ice_token": "</E>"}}, {"a": "1"}, [{"a": "2"}],
        "examples need a template: write ice_template, or leave the examples out",
    ),
    "a column of messages that is none": (
        {"prompt_template": {"messages": [{"expand_column": "history"}]}}, {"history": "hi"}, None,
        "the variable history must be a list of messages",
    ),
    "tagged text is missing": (
        {"prompt_template": {"template": {"round": [{"role": "HUMAN", "prompt_mm": {
            "text": {"type": "text", "text": "{question}"}}}]}}}, {"question": "hi"}, None,
        "the variable content is missing; send it with tagged text, such as <AIS_TEXT_START>…<AIS_CONTENT_TAG>",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_variables_that_do_not_fit_are_refused(case: str) -> None:
    file, variables, examples, message = REFUSED[case]
    with pytest.raises(InvalidValue) as caught:
        made(file).generation(variables, examples)
    assert caught.value.message == message


def test_a_prompt_without_labels_makes_no_candidates() -> None:
    with pytest.raises(InvalidValue, match="prompt p has no labels"):
        made({"prompt_template": {"template": "{a}"}}).candidates({"a": "1"})


def test_columns_without_a_variable_are_known() -> None:
    prompt = made({"prompt_template": {"template": "{a} {b} {c-d} {answer}"}, "output_column": "answer"})
    assert prompt.unfilled({"a": "1"}) == ["b"]
