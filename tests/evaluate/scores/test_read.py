"""The readers, on files that the harnesses have written: six sums each, the last one with a wrong expected answer."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from gateway.core.errors import InvalidValue
from gateway.evaluate.scores.read import FORMATS, read_harness
from gateway.evaluate.scores.row import dialogue_requests, text_hash

SAMPLES = Path(__file__).parent / "samples"
FIRST = ("72+64=?", "136")
"""The first question, and what the demo answers."""
RIGHT = 5 / 6

# sample: names of the score, the id of the first row, rows, requests of a row, mean
READ = {
    "lm-eval-chat": ("lm-eval exact_match", "lm-eval:sums/0", 6, 1, RIGHT),
    "lm-eval-filters": ("lm-eval exact_match,strict", "lm-eval:sums/0", 6, 2, RIGHT),
    "lm-eval-loglikelihood": ("lm-eval acc", "lm-eval:sums_choice/0", 6, 4, RIGHT),
    "lm-eval-chat-template": ("lm-eval acc", "lm-eval:sums_choice_chat/0", 6, 4, RIGHT),
    "evalscope": ("evalscope Rouge-L-R", "evalscope:general_qa_sums/0", 6, 1, RIGHT),
    "inspect-ai": ("inspect-ai exact", "inspect-ai:sums/1", 6, 1, RIGHT),
    "inspect-judge": ("inspect-ai exact", "inspect-ai:sums/1", 4, 1, 1.0),
    "promptfoo": ("promptfoo success", "promptfoo:0/0", 6, 1, RIGHT),
    "opencompass": ("opencompass correct", "opencompass:sums/0", 6, 1, RIGHT),
    "opencompass-repeats": ("opencompass correct", "opencompass:sums/0", 6, 2, RIGHT),
    "ais-bench": ("ais-bench correct", "ais-bench:sums/0", 6, 1, RIGHT),
}


@pytest.mark.parametrize("sample", READ)
def test_a_folder_of_a_harness_is_read(sample: str) -> None:
    label, first, rows, requests, mean = READ[sample]
    found = read_harness(SAMPLES / sample)
    by_id = {row.id: row for row in found.rows}
    assert list(found.labels) == [label]
    assert (len(by_id), first in by_id, {len(row.requests) for row in found.rows}) == (rows, True, {requests})
    assert fmean([row.score or 0.0 for row in found.rows]) == mean
    if requests < 4:
        _, text, answer, end = by_id[first].requests[0]
        assert (answer, end) == (text_hash(FIRST[1]), FIRST[1])
        assert (text == text_hash(FIRST[0])) != (sample in ("lm-eval-filters", "inspect-judge")), (
            "more stands before it"
        )


def test_every_form_has_a_sample() -> None:
    assert {label.partition(" ")[0] for label, *_ in READ.values()} == {
        "lm-eval",
        "evalscope",
        "inspect-ai",
        "promptfoo",
        "opencompass",
        "ais-bench",
    }
    assert len(FORMATS) == 5, "OpenCompass and AISBench have one"


def test_a_request_of_a_loglikelihood_is_the_context_with_a_choice() -> None:
    (row, *_) = read_harness(SAMPLES / "lm-eval-loglikelihood").rows
    prompt = "<HUMAN>: 72+64=?<eoh>\n<BOT>: "
    assert row.requests == tuple(
        (None, text_hash(prompt + choice), None, None) for choice in ("146", "136", "147", "137")
    )


def test_the_ids_of_responses_are_those_that_solvers_received() -> None:
    judged = read_harness(SAMPLES / "inspect-judge").rows
    assert [row.id for row in judged] == [f"inspect-ai:sums/{one}" for one in ("1", "2", "1#2", "2#2")]
    models = (SAMPLES / "inspect-judge/sums.json").read_text().count('"event": "model"')
    ids = [request[0] for row in judged for request in row.requests]
    assert (len(set(ids)), models) == (4, 8)
    found = [request[0] for row in read_harness(SAMPLES / "promptfoo").rows for request in row.requests]
    assert all(re.fullmatch("[0-9a-f]{32}", str(one)) for one in [*ids, *found])


def test_parts_of_messages_without_a_text_are_no_text() -> None:
    parts = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "a", "internal": {"id": "msg_1"}}]
    messages: list[dict[str, Any]] = [{"content": parts}, {"content": "b", "source": "generate"}, {"content": None}]
    assert dialogue_requests(messages) == ((None, text_hash("a"), text_hash("b"), "b"),)


def test_another_score_is_chosen_by_its_name() -> None:
    filters = read_harness(SAMPLES / "lm-eval-filters", "exact_match,last-digit")
    assert (list(filters.labels), list(filters.others)) == (
        ["lm-eval exact_match,last-digit"],
        ["exact_match,strict"],
    )
    assert len(filters.rows) == 6
    assert list(read_harness(SAMPLES / "evalscope", "bleu-1").labels) == ["evalscope bleu-1"]
    with pytest.raises(InvalidValue, match=r"no row has a score bleu; the scores are success, score"):
        read_harness(SAMPLES / "promptfoo", "bleu")


def test_a_score_of_a_judge_that_failed_is_no_score() -> None:
    judged = read_harness(SAMPLES / "inspect-judge", "model_graded_qa").rows
    assert [row.score for row in judged] == [None] * 4


def test_predictions_of_lm_eval_have_no_score(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(line("lm-eval-chat").replace("exact_match", "bypass"))
    with pytest.raises(InvalidValue, match="no row has a score"):
        read_harness(tmp_path)


def test_two_runs_in_a_folder_are_refused_with_both_files(tmp_path: Path) -> None:
    sample = next((SAMPLES / "lm-eval-chat").iterdir())
    for day in ("28", "29"):
        shutil.copy(sample, tmp_path / f"samples_sums_2026-11-{day}T16-29-52.456567.jsonl")
    with pytest.raises(InvalidValue, match=r"the row lm-eval:sums/0 is in .*-28T.* and in .*-29T.*; give the file"):
        read_harness(tmp_path)
    os.utime(tmp_path / "samples_sums_2026-11-28T16-29-52.456567.jsonl", (1000, 1000))
    assert len(read_harness(tmp_path, since=2000).rows) == 6
    with pytest.raises(InvalidValue, match="known harness; files that are older than the command do not count: 2"):
        read_harness(tmp_path, since=time.time() + 1000)


def line(sample: str) -> str:
    return next(one for one in (SAMPLES / sample).rglob("*") if one.is_file()).read_text().splitlines()[0]


WRONG = {
    "an empty file": ("", "x.json: no scores of a known harness; give lm-eval's samples"),
    "no JSON": ("hello\n", "x.json: no scores of a known harness"),
    "another program": ('{"a": 1}\n', "x.json: no scores of a known harness"),
    "predictions without results": ('{"0": {"origin_prompt": "a", "prediction": "b"}}', "--dump-eval-details"),
    "a cut line": ("{0}\n{1}", "x.json:2: this line is not a JSON object; the file may be cut off"),
    "another line": (
        '{0}\n{"a": 1}\n',
        "x.json:2: this is not a row of a harness with a number as its score exact_match; the scores are exact",
    ),
    "a list": ("{0}\n[]\n", "x.json:2: this line is not a JSON object"),
    "no number": (
        '{"doc_id": 0, "resps": [], "filter": "none", "metrics": ["f1"], "arguments": {}, "f1": [1, 2]}',
        "x.json:1: this is not a row of a harness with a number as its score f1; the scores are f1",
    ),
    "a deep value": ('{"doc_id": ' + "[" * 100_000, "x.json: no scores of a known harness"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_cannot_be_read_is_named(case: str, tmp_path: Path) -> None:
    text, message = WRONG[case]
    whole = line("lm-eval-chat")
    (tmp_path / "x.json").write_text(text.replace("{0}", whole).replace("{1}", whole[:50]))
    with pytest.raises(InvalidValue) as error:
        read_harness(tmp_path / "x.json")
    assert message in error.value.message


def test_details_without_rights_must_give_the_accuracy_of_the_file(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "opencompass", tmp_path, dirs_exist_ok=True)
    results = tmp_path / "results/demo/sums.json"
    results.write_text(json.dumps({**json.loads(results.read_bytes()), "accuracy": 90.0}))
    with pytest.raises(InvalidValue, match="the details do not say which rows are right"):
        read_harness(tmp_path)


def test_a_failed_request_of_ais_bench_is_a_row(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "ais-bench", tmp_path, dirs_exist_ok=True)
    predictions = tmp_path / "predictions/demo/sums.jsonl"
    lines = predictions.read_text().splitlines()
    predictions.write_text("\n".join(lines[1:]) + "\n")
    failed = {"data_abbr": "sums", "id": 0, "input": [{"role": "HUMAN", "prompt": FIRST[0]}], "error_info": "Bad"}
    (tmp_path / "predictions/demo/sums_failed.jsonl").write_text(json.dumps(failed) + "\n")
    assert read_harness(tmp_path).rows[0].requests == ((None, text_hash(FIRST[0]), b"", ""),)


VALUES: tuple[Any, ...] = (None, 0, -1, 1.5, "", "x", [], {}, [1], {"a": 1}, [[]], True)


def changed(value: Any, rng: random.Random) -> Any:
    """A JSON value with another value at one place."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return rng.choice(VALUES)
    if isinstance(value, dict):
        name = rng.choice(list(value))
        return {**value, name: changed(value[name], rng)}
    at = rng.randrange(len(value))
    return [*value[:at], changed(value[at], rng), *value[at + 1 :]]


@pytest.mark.parametrize("sample", READ)
def test_a_value_of_another_type_is_read_or_refused(sample: str, tmp_path: Path) -> None:
    rng = random.Random(sample)
    for number in range(50):
        folder = tmp_path / str(number)
        shutil.copytree(SAMPLES / sample, folder)
        file = rng.choice([one for one in folder.rglob("*") if one.is_file()])
        text = file.read_text()
        lines = text.splitlines() if file.suffix == ".jsonl" else [text]
        at = rng.randrange(len(lines))
        lines[at] = json.dumps(changed(json.loads(lines[at]), rng))
        file.write_text("\n".join(lines))
        with suppress(InvalidValue):
            assert read_harness(folder).rows
