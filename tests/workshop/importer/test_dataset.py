"""A dataset config becomes prompt files; what is not imported is listed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.errors import ConfigError
from gateway.workshop.importer.dataset import EXACT_NOTE, FILL_NOTE, read_dataset
from gateway.workshop.importer.draft import Draft
from gateway.workshop.importer.kinds import kind_of
from tests.workshop.importer.files import shipped, source


def test_a_few_shot_config_becomes_a_prompt_and_notes() -> None:
    (draft,) = read_dataset(shipped("sums_gen.py"))
    assert (draft.name, draft.is_prompt) == ("sums/small", True)
    example = draft.keys["examples"][0]
    assert {key: value for key, value in draft.keys.items() if key != "examples"} == {
        "description": "Imported from the dataset config sums_gen.py.",
        "input_columns": ["question", "hint"],
        "output_column": "answer",
        "ice_template": {
            "template": {"round": [{"role": "HUMAN", "prompt": "{question}"}, {"role": "BOT", "prompt": "{answer}"}]}
        },
        "prompt_template": {
            "template": {
                "begin": [{"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": "Add. {hint}"}, "</E>"],
                "round": [{"role": "HUMAN", "prompt": "{question} ({unit})"}, {"role": "BOT", "prompt": "{answer}"}],
            },
            "ice_token": "</E>",
        },
    }
    assert example["variables"] == {"question": "(the question)", "hint": "(the hint)"}
    assert [row["answer"] for row in example["examples"]] == ["(the answer of example 1)", "(the answer of example 2)"]
    assert [turn["prompt"] for turn in example["prompt"]] == [
        "Add. (the hint)",
        "(the question of example 1)",
        "(the answer of example 1)",
        "(the question of example 2)",
        "(the answer of example 2)",
        "(the question) ({unit})",
        "",
    ]
    notes = "\n".join(draft.notes)
    for noted in (
        "the rows [0, 3] of the train split",
        "{kind: fixed, ids: [0, 3]}",
        "max_tokens: 16",
        "type = Sums",
        "path = './data/sums'",
        "eval_cfg = ",
        "reader_cfg.train_split = 'train'",
        "the template has {unit}",
        FILL_NOTE,
    ):
        assert noted in notes


def test_each_dataset_of_a_list_becomes_a_prompt_with_labels() -> None:
    small, large = read_dataset(shipped("sums_ppl.py"))
    assert (small.name, large.name) == ("sums-small", "sums-very_large")
    assert large.keys["examples"] == [
        {
            "variables": {"question": "(the question)", "A": "(the A)", "B": "(the B)"},
            "labels": {
                "A": "A very large sum.\n(the question) (the A)",
                "B": "A very large sum.\n(the question) (the B)",
            },
        }
    ]
    assert any("PPLInferencer: clients score the prompt of each label" in note for note in large.notes)


def test_a_dialogue_of_several_turns_without_a_list_of_datasets() -> None:
    (draft,) = read_dataset(shipped("sums_turns.py"))
    assert (draft.name, draft.keys["multi_turn"]) == ("turns", True)
    assert "examples" not in draft.keys
    assert any("gateway: {turns: {mode: 'every'}}" in note for note in draft.notes)


def test_json_gives_content_parts_and_messages() -> None:
    pictures, messages = read_dataset(shipped("pictures.json"))
    (turn,) = pictures.keys["examples"][0]["prompt"]
    assert turn["prompt_mm"] == [
        {"type": "text", "text": "Question: (the question)"},
        {"type": "image_url", "image_url": {"url": "file://(the image)"}},
    ]
    assert messages.keys["prompt_template"]["ice_token"] == "</E>"
    sent = messages.keys["examples"][0]["prompt"]
    assert [message["content"] for message in sent[-2:]] == ["(the history)", "(the question)"]
    assert len(sent) == 6
    assert any("2 random rows" in note and "count: 2, seed: 7" in note for note in messages.notes)


def drafts(template: str, **further: str) -> list[Draft]:
    rest = "".join([f", {key}={value}" for key, value in further.items()])
    return read_dataset(source("q.py", f"q_infer_cfg = dict(prompt_template=dict(template={template}{rest}))"))


def test_fill_is_opencompass_if_once_writes_another_prompt() -> None:
    parts = "dict(role='HUMAN', prompt_mm=dict(text=dict(type='text', text='{question}')))"
    (draft,) = drafts(f"dict(round=[dict(role='SYSTEM', prompt='{{content}}'), {parts}])")
    assert draft.keys["fill"] == "opencompass"
    assert EXACT_NOTE in draft.notes
    assert draft.keys["examples"][0]["prompt"][0]["prompt"] == "{content}"


def test_a_config_without_an_answer_column_is_warned_of() -> None:
    (draft,) = drafts("'Q: {question}\\nA: {answer}'")
    assert draft.notes[0] == (
        "output_column is missing, so the prompt contains the value of {answer} if a request sends it; if this is the "
        "answer, write output_column: answer, else list the column under input_columns"
    )
    assert "output_column" not in draft.keys


def test_the_answer_is_left_out_of_messages_that_have_its_column() -> None:
    text = (
        "q_reader_cfg = dict(input_columns=['q'], output_column='a')\n"
        "q_infer_cfg = dict(prompt_template=dict(type=RawPromptTemplate, messages=["
        "dict(role='user', content='{q} {a}')]))"
    )
    (draft,) = read_dataset(source("q.py", text))
    assert "fill" not in draft.keys
    assert draft.keys["examples"] == [
        {"variables": {"q": "(the q)"}, "prompt": [{"role": "user", "content": "(the q) "}]}
    ]
    assert any(note.startswith("the gateway leaves the answer out of the messages") for note in draft.notes)


def test_the_column_in_the_models_turn_becomes_the_answer_column() -> None:
    (draft,) = drafts("dict(round=[dict(role='HUMAN', prompt='{question}'), dict(role='BOT', prompt='A: {answer}')])")
    assert draft.keys["output_column"] == "answer"
    assert draft.notes[0].startswith("output_column: answer was added, because the config has none")
    assert [turn["prompt"] for turn in draft.keys["examples"][0]["prompt"]] == ["(the question)", "A: "]


def test_the_column_that_ends_the_examples_becomes_the_answer_column() -> None:
    """The first config of the document, which has no ``reader_cfg``."""
    (draft,) = drafts(
        "'Solve the following questions.\\n</E>{question}\\n{answer}', ice_token='</E>'), "
        "ice_template=dict(template='{question}\\n{answer}'"
    )
    assert draft.keys["output_column"] == "answer"
    assert draft.keys["examples"][0]["prompt"] == "Solve the following questions.\n(the question)\n"


AS_PRINTED: dict[str, tuple[str, str]] = {
    "an inferencer with **args": (
        "infer_cfg = dict(prompt_template=dict(type=PromptTemplate, template='{question}'), retriever=...,\n"
        "    inferencer=dict(type=GenInferencer, **args))",
        "inferencer was not read, because it is a mapping with keys that are not plain values (line 2)",
    ),
    "a template alone": ("prompt_template = dict(type='PromptTemplate', template='{question}')", "fill: once"),
    "an infer_cfg of a named template": (
        "prompt_template = dict(template='{question}')\ninfer_cfg = dict(prompt_template=prompt_template)",
        "fill: once",
    ),
}


@pytest.mark.parametrize(("text", "note"), AS_PRINTED.values(), ids=AS_PRINTED)
def test_a_config_is_read_as_the_documents_print_it(text: str, note: str) -> None:
    file = source("q.py", text)
    assert kind_of(file) == "dataset"
    (draft,) = read_dataset(file)
    assert draft.keys["prompt_template"] == {"template": "{question}"}
    assert any(one.startswith(note) for one in draft.notes)


def test_the_templates_of_one_name_make_one_prompt() -> None:
    text = "a_prompt_template = dict(template='</E>{q}', ice_token='</E>')\na_ice_template = dict(template='{q}')"
    (draft,) = read_dataset(source("q.py", text))
    assert (draft.name, draft.keys["ice_template"]) == ("a", {"template": "{q}"})


def test_the_end_of_examples_is_kept_without_a_retriever_of_examples() -> None:
    text = (
        "q_infer_cfg = dict(prompt_template=dict(template='</E>{q}', ice_token='</E>'), "
        "retriever=dict(type=ZeroRetriever, ice_eos_token='@@'))"
    )
    (draft,) = read_dataset(source("q.py", text))
    assert draft.keys["examples"][0]["prompt"] == "@@(the q)"


def test_labels_that_are_numbers_become_texts_with_a_note() -> None:
    (draft,) = drafts("{0: '{question} 0', 1: '{question} 1'}")
    assert list(draft.keys["prompt_template"]["template"]) == ["0", "1"]
    assert any("the labels [0, 1] were changed to texts" in note for note in draft.notes)


ENTRY = "dict(abbr='{}', infer_cfg=dict(prompt_template=dict(template='{{a}}')))"
GIVEN = f"a_datasets = [{ENTRY.format('a')}]\n"
NOT_READ = {
    "a call": (f"{GIVEN}b_datasets = make()", ["b_datasets: make(…) (line 2)"]),
    "a call in a list": (
        f"a_datasets = [{ENTRY.format('a')}, make()]",
        ["a_datasets[1]: it is not a mapping with infer_cfg but make(…) (line 1)"],
    ),
    "a comprehension": (f"{GIVEN}b_datasets = [b for b in c]", ["b_datasets: a comprehension (line 2)"]),
    "a method of a call": (f"{GIVEN}b_datasets = A().make()", ["b_datasets: A.make(…) (line 2)"]),
    "a list beside datasets": (f"datasets = [{ENTRY.format('a')}]\nb_datasets = make()", []),
    "a class and a function": (f"{GIVEN}import datasets\ndef make_datasets():\n    return []", []),
}


@pytest.mark.parametrize(("text", "lines"), NOT_READ.values(), ids=NOT_READ)
def test_datasets_that_were_found_and_not_read_are_listed(text: str, lines: list[str]) -> None:
    (draft,) = read_dataset(source("q.py", text))
    assert draft.name == "a"
    assert list(draft.not_read) == lines


def test_an_infer_cfg_is_not_read_instead_of_datasets_that_were_not_read() -> None:
    text = "q_infer_cfg = dict(prompt_template=dict(template='{a}'))\nq_datasets = make(q_infer_cfg)"
    (draft,) = read_dataset(source("q.py", text))
    assert draft.not_read == ("q_datasets: make(…) (line 2)",)


def test_datasets_in_a_list_of_another_name_are_all_read() -> None:
    text = f"a = [{ENTRY.format('a')}]\nsums = a + [{ENTRY.format('b')}]"
    assert [draft.name for draft in read_dataset(source("q.py", text))] == ["a", "b"]


RESOLVED = [
    {
        "abbr": name,
        "infer_cfg": {"prompt_template": {"type": "opencompass.x.PromptTemplate", "template": f"{name} {{a}}"}},
    }
    for name in ("a", "b")
]


@pytest.mark.parametrize("value", [{"datasets": RESOLVED}, {"a_datasets": RESOLVED[:1], "b_datasets": RESOLVED[1:]}])
@pytest.mark.parametrize("form", ["json", "py"])
def test_a_resolved_config_is_read(value: dict[str, Any], form: str) -> None:
    text = json.dumps(value) if form == "json" else "\n".join([f"{name} = {one!r}" for name, one in value.items()])
    read = source(f"resolved.{form}", text)
    assert kind_of(read) == "dataset"
    assert [draft.keys["prompt_template"]["template"] for draft in read_dataset(read)] == ["a {a}", "b {a}"]


REFUSED = {
    "a template beside datasets that are not read": (
        "q_prompt_template = dict(template='{q}')\nq_datasets = make(q_prompt_template)",
        "so the file has no dataset with a plain infer_cfg",
    ),
    "nothing": ("x = 1", "q.py: the file has no dataset with a plain infer_cfg"),
    "a class of the file's own": (
        "q_infer_cfg = dict(prompt_template=dict(type=MyTemplate))",
        "q.py:1 q_infer_cfg.prompt_template: the class MyTemplate is not supported",
    ),
    "a file that is read": (
        "hint = open('a').read()\nq_infer_cfg = dict(prompt_template=dict(template=hint))",
        "q.py:1: template contains open.read(…) (line 1), which is not executed; write the plain value there, or, for ",
    ),
    "a name that is not plain": (
        "q_datasets = [dict(abbr=f'{a}', infer_cfg=dict(prompt_template=dict(template='{a}')))]",
        "q.py:1: abbr contains an f-string (line 1); write the plain value there, or",
    ),
    "no template": ("q_infer_cfg = dict(retriever=dict())", "q_infer_cfg: prompt_template: "),
    "no place for the examples": (
        "q_infer_cfg = dict(prompt_template=dict(template='{a}'), ice_template=dict(template='{a}'), "
        "retriever=dict(type=FixKRetriever, fix_id_list=[0]))",
        "has no place for examples",
    ),
    "a dialogue without round": (
        "q_infer_cfg = dict(prompt_template=dict(template=dict(begin='{a}')))",
        "a dialogue needs round",
    ),
    "columns that stay": (
        "q_infer_cfg = dict(prompt_template=dict(type=RawPromptTemplate, format_variables=False, "
        "messages=[dict(role='user', content='{a}')]))",
        "has format_variables=False",
    ),
    "datasets changed by code": (
        "q_datasets = [dict(infer_cfg=dict())]\nfor q in q_datasets:\n    q['infer_cfg'][a] = 1",
        "q.py:2: a loop is not read; write the plain value there, or",
    ),
    "a retriever of unknown examples": (
        "q_infer_cfg = dict(prompt_template=dict(template='</E>{a}', ice_token='</E>'), retriever=make())",
        "retriever contains make(…)",
    ),
    "several columns in the model's turn": (
        "q_infer_cfg = dict(prompt_template=dict(template=dict(round=[dict(role='BOT', prompt='{a}{b}')])))",
        "output_column: is missing, and the model answers where the template has {a}, {b}",
    ),
    "an infer_cfg made by a function": ("q_datasets = [dict(infer_cfg=make())]", "q.py:1: infer_cfg contains make(…)"),
}


@pytest.mark.parametrize(("text", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_a_prompt_file_cannot_say_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_dataset(source("q.py", text))
    assert problem in str(caught.value)


DATASET = "q_datasets = [dict(infer_cfg=dict(prompt_template=dict(template='{a}')))]\n"
KINDS: dict[str, tuple[str, Any, str]] = {
    "a list of datasets": ("q.py", DATASET, "dataset"),
    "a list that code assembles": ("q.py", "q_datasets = make()", "dataset"),
    "a list that code assembles from a template": (
        "q.py",
        "q_prompt_template = dict(template='{q}')\nq_datasets = make(q_prompt_template)",
        "dataset",
    ),
    "models and the name of datasets": ("q.py", "models = [dict(abbr='m')]\ndatasets = make()", "opencompass"),
    "JSON": ("q.json", '{"infer_cfg": {}}', "dataset"),
    "YAML": ("q.yaml", "prompt_template: {template: x}", "dataset"),
}


@pytest.mark.parametrize(("name", "text", "kind"), KINDS.values(), ids=KINDS)
def test_a_dataset_config_is_recognised(name: str, text: str, kind: str) -> None:
    assert kind_of(source(name, text)) == kind


def test_a_template_beside_datasets_is_the_judges() -> None:
    assert kind_of(source("q.py", f"api_meta_template = dict(round=[])\n{DATASET}")) == "dataset"


def test_a_config_with_models_and_datasets_needs_a_kind() -> None:
    with pytest.raises(ConfigError, match="the format may be opencompass or dataset; choose the format with --kind"):
        kind_of(source("q.py", f"models = [dict(abbr='m')]\n{DATASET}"))
