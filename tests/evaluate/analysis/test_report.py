"""What a report says about the rows of a run."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.answer_class import CLASSES, class_of
from gateway.evaluate.analysis.report import report_of
from gateway.evaluate.analysis.rows import RunAnswer, RunRow, RunToolCall, read_output
from gateway.evaluate.analysis.scores import JUDGES, bootstrap, judge_of, read_scores, score_of
from gateway.evaluate.analysis.tool_check import ToolChecker

CHECKER = ToolChecker()

LOOP = "and so on, " * 40
ADD = {"function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}

IN_TEXT = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"


def call(name: str, arguments: str) -> RunAnswer:
    return RunAnswer(tool_calls=(RunToolCall(name, arguments),), finish_reason="tool_calls")


ANSWERS = {
    "ended by the model": (RunAnswer("42", finish_reason="stop"), "whole"),
    "refused by a filter": (RunAnswer("I", finish_reason="content_filter"), "refused"),
    "refused in words": (RunAnswer(refusal="no", finish_reason="stop"), "refused"),
    "nothing": (RunAnswer(finish_reason="stop"), "empty"),
    "reasoning only": (RunAnswer(reasoning="hm", finish_reason="length", cut="thinking"), "thinking only"),
    "a loop at the limit": (RunAnswer(LOOP, finish_reason="length"), "looping"),
    "a repetition that the model ended": (RunAnswer(LOOP, finish_reason="stop"), "whole"),
    "cut at the context": (RunAnswer("4", finish_reason="length", cut="context"), "cut by context"),
    "cut at max_tokens": (RunAnswer("4", finish_reason="length"), "cut by length"),
    "stopped at max_tokens": (RunAnswer("4", finish_reason="stop", cut="at_limit"), "ended at the limit"),
    "a loop that stopped at max_tokens": (RunAnswer(LOOP, finish_reason="stop", cut="at_limit"), "looping"),
    "a tool call": (call("add", '{"a": 1}'), "whole"),
    "arguments that are not JSON": (call("add", '{"a": '), "bad tool call"),
    "arguments that are no object": (call("add", "1"), "bad tool call"),
    "arguments against the schema": (call("add", '{"a": "x"}'), "bad tool call"),
    "an unknown tool": (call("sub", "{}"), "bad tool call"),
    "a call in the text": (RunAnswer("So.\n" + IN_TEXT, finish_reason="stop"), "bad tool call"),
    "a call in a block of code": (RunAnswer(f"```\n{IN_TEXT}\n```", finish_reason="stop"), "whole"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_the_class_of_an_answer(case: str) -> None:
    answer, expected = ANSWERS[case]
    assert class_of(RunRow("a", "m", answers=(answer,), tools=(ADD,)), CHECKER) == expected


def test_a_failed_row_is_failed_and_of_several_answers_the_first_class_counts() -> None:
    assert class_of(RunRow("a", "m", error="timeout"), CHECKER) == "failed"
    cut, empty = ANSWERS["cut at max_tokens"][0], ANSWERS["nothing"][0]
    assert class_of(RunRow("a", "m", answers=(cut, empty)), CHECKER) == "empty"


def test_a_call_is_compared_only_with_tools_that_are_known() -> None:
    row = RunRow("a", "m", answers=(call("sub", "{}"),))
    assert class_of(row, CHECKER) == "whole"
    assert class_of(RunRow("a", "m", answers=(RunAnswer(IN_TEXT),)), CHECKER) == "whole"
    assert report_of([row]).unchecked_calls == 1


def test_the_classes_sum_to_the_rows_in_every_group() -> None:
    answers = [answer for answer, _ in ANSWERS.values()]
    rows = [RunRow(str(n), f"m{n % 3}", answers=(answers[n % len(answers)],)) for n in range(100)]
    report = report_of([*rows, RunRow("failed", "m0", error="timeout")]).as_json()
    assert sum(report["classes"].values()) == report["rows"] == 101
    assert list(report["classes"]) == list(CLASSES)
    for values in report["by"].values():
        assert sum(sum(counts.values()) for counts in values.values()) == 101


def test_the_score_is_that_of_all_rows_and_of_the_whole_ones() -> None:
    right, cut = RunAnswer("42", finish_reason="stop"), RunAnswer("4", finish_reason="length")
    rows = [RunRow(str(n), "m", answers=(right if n % 2 else cut,), columns={"answer": "42"}) for n in range(100)]
    report = report_of([replace(row, points=score_of(row, judge_of("exact"), "answer")) for row in rows])
    assert report.all_rows is not None
    assert report.whole_rows is not None
    assert (report.all_rows.mean, report.whole_rows.mean, report.whole_rows.rows) == (0.5, 1.0, 50)
    assert 0.35 < report.all_rows.low < 0.45 < 0.55 < report.all_rows.high < 0.65


SCORES = {
    "exact": (" 42\n", "42", True),
    "contains": ("it is 42.", "42", True),
    "choice": ("The answer is (B).", "B", True),
    "regex:(-?[0-9]+)$": ("7 + 8 = 15", "15", True),
    "regex:[0-9]+": ("7 + 8 = 15", "15", False),
}


@pytest.mark.parametrize("score", SCORES)
def test_a_score_compares_the_text_with_the_kept_answer(score: str) -> None:
    text, expected, right = SCORES[score]
    assert judge_of(score)(text, expected) is right


def test_wrong_scores_are_named(tmp_path: Path) -> None:
    for score, named in {"exakt": ", ".join(JUDGES), "regex:": "regex:PATTERN", "regex:(": "unterminated"}.items():
        with pytest.raises(InvalidValue, match=named):
            judge_of(score)
    with pytest.raises(
        InvalidValue, match='row a has no column "answer"; add it to the data and run with --keep answer'
    ):
        score_of(RunRow("a", "m"), judge_of("exact"), "answer")
    file = tmp_path / "scores.jsonl"
    file.write_text('{"custom_id": "a", "score": 1}\n')
    assert read_scores(file) == {"a": 1.0}
    file.write_text('{"custom_id": "a"}\n')
    with pytest.raises(InvalidValue, match=r"scores\.jsonl:1"):
        read_scores(file)


@pytest.mark.parametrize("value", [["2", "two"], None, True, {"a": 1}, "", " \n"], ids=json.dumps)
def test_an_expected_value_that_is_no_text_or_number_is_refused(value: Any) -> None:
    row = RunRow("a", "m", answers=(RunAnswer("None True"),), columns={"answer": value})
    with pytest.raises(InvalidValue, match=r'row a: the column "answer" is .+; write the expected text, .+ --scores'):
        score_of(row, judge_of("contains"), "answer")


def test_a_number_is_compared_as_text() -> None:
    for text, value in (("42", 42), ("0.5", 0.5), ("-1", -1), ("", "")):
        row = RunRow("a", "m", answers=(RunAnswer(text),), columns={"answer": value})
        assert score_of(row, judge_of("exact"), "answer") == 1.0


@pytest.mark.parametrize("count", [10, 1000, 20_000])
def test_the_interval_contains_the_true_mean_as_often_as_it_says(count: int) -> None:
    rng = random.Random(1)
    repeats = 60 if count == 10 else 12
    hits = 0
    for _ in range(repeats):
        found = bootstrap([float(rng.random() < 0.3) for _ in range(count)])
        hits += found.low <= 0.3 <= found.high
    assert hits >= 0.75 * repeats  # ten values give a short interval
    assert bootstrap([]).rows == 0


def line(body: Any, **gateway: Any) -> bytes:
    response = {"status_code": 200, "body": body}
    value = {"custom_id": "a", "response": response, "error": None, "gateway": {"model": "m", **gateway}}
    return json.dumps(value).encode() + b"\n"


def test_the_rows_of_an_output_file(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    chat = {
        "choices": [
            {"index": 0, "finish_reason": "length", "message": {"content": "4", "reasoning_content": "hm"}},
            {"index": 1, "finish_reason": "stop", "message": {"content": [{"type": "text", "text": "5"}]}},
        ]
    }
    turns = {"choices": [], "gateway": {"turns": [{"content": "3", "finish_reason": "stop"}]}}
    failed = b'{"custom_id": "a", "response": null, "error": {"code": "timeout"}, "gateway": {}}\n'
    lines = [
        line(chat, notices=["answer_cut: choices[0]=context"]),
        line({"prediction": "B"}),
        line(turns),
        line({"choices": [{"index": 0, "text": "t", "finish_reason": "stop"}]}),
        failed,
        b'{"custom_id": "cut off',
    ]
    file.write_bytes(b"".join(lines))
    rows = list(read_output(file))
    assert [[answer.text for answer in row.answers] for row in rows] == [["4", "5"], ["B"], ["3"], ["t"], []]
    assert [class_of(row, CHECKER) for row in rows] == ["cut by context", "whole", "whole", "whole", "failed"]
    assert rows[4].error == "timeout"
    file.write_bytes(b"[1]\n")
    with pytest.raises(InvalidValue, match=r"out\.jsonl:1: this line is not from `gateway run`"):
        list(read_output(file))
