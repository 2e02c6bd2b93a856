"""Lines of a data file become requests, or are refused with their place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.options import CommandError
from gateway.evaluate.running.rows import DataRow, RowForm, RowProblem, read_examples, read_rows, survey

ASK = [{"role": "user", "content": "1+1=?"}]
TUNING = [*ASK, {"role": "assistant", "content": "2"}]
PLAIN = RowForm(model="m")
PROMPT = RowForm(model="m", prompt="sums")

ROWS: dict[str, tuple[RowForm, dict[str, Any], str, dict[str, Any]]] = {
    # options, line, URL, body
    "messages": (PLAIN, {"messages": ASK, "seed": 1}, "/v1/chat/completions",
                 {"messages": ASK, "seed": 1, "model": "m"}),
    "a text": (PLAIN, {"prompt": "1+1="}, "/v1/completions", {"prompt": "1+1=", "model": "m"}),
    "its own model": (RowForm(), {"messages": ASK, "model": "x"}, "/v1/chat/completions",
                      {"messages": ASK, "model": "x"}),
    "a batch line": (
        RowForm(),
        {"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"model": "e", "input": "hi"}},
        "/v1/embeddings", {"model": "e", "input": "hi"},
    ),
    "variables of a prompt": (
        PROMPT, {"question": "1+1=?", "url": "http://x", "messages": 3}, "/v1/chat/completions",
        {"gateway": {"prompt": {"id": "sums", "variables": {"question": "1+1=?", "url": "http://x", "messages": 3}}},
         "model": "m"},
    ),
    "candidates of a prompt": (
        RowForm(model="m", prompt="sums", infer="ppl"), {"question": "1+1=?"}, "/v1/loglikelihood",
        {"prompt": {"id": "sums", "variables": {"question": "1+1=?"}}, "model": "m"},
    ),
    "candidates": (
        RowForm(model="m", infer="ppl"), {"custom_id": "a", "candidates": {"A": "yes", "B": "no"}},
        "/v1/loglikelihood", {"candidates": {"A": "yes", "B": "no"}, "model": "m"},
    ),
    "questions of a dialogue": (
        RowForm(model="m", infer="multiturn", turns="every_with_gt"),
        {"questions": ["1+1=?", "2+2=?"], "answers": ["2"], "gateway": {"explain": True}}, "/v1/chat/completions",
        {"gateway": {"explain": True, "turns": {"mode": "every_with_gt", "questions": ["1+1=?", "2+2=?"],
                                                "answers": ["2"]}}, "model": "m"},
    ),
    "a dialogue of a prompt": (
        RowForm(model="m", prompt="sums", infer="multiturn"), {"question": ["1+1=?"]}, "/v1/chat/completions",
        {"gateway": {"prompt": {"id": "sums", "variables": {"question": ["1+1=?"]}}, "turns": {"mode": "every"}},
         "model": "m"},
    ),
    "examples of a prompt": (
        RowForm(model="m", prompt="sums", examples=({"question": "a"},)), {"question": "b"}, "/v1/chat/completions",
        {"gateway": {"prompt": {"id": "sums", "variables": {"question": "b"}, "examples": [{"question": "a"}]}},
         "model": "m"},
    ),
    "fields for all rows": (
        RowForm(model="m", params={"max_tokens": 8, "seed": 1}), {"messages": ASK, "seed": 2}, "/v1/chat/completions",
        {"max_tokens": 8, "seed": 2, "messages": ASK, "model": "m"},
    ),
    "fields of the gateway for all rows": (
        RowForm(model="m", params={"gateway": {"explain": True, "variables": {"a": "b"}}}),
        {"messages": ASK, "gateway": {"variables": {}}}, "/v1/chat/completions",
        {"gateway": {"explain": True, "variables": {}}, "messages": ASK, "model": "m"},
    ),
    "fields of the gateway with a prompt": (
        RowForm(model="m", prompt="sums", params={"gateway": {"explain": True}}), {"question": "b"},
        "/v1/chat/completions",
        {"gateway": {"explain": True, "prompt": {"id": "sums", "variables": {"question": "b"}}}, "model": "m"},
    ),
    "fields of a dialogue for rows that do not set them": (
        RowForm(model="m", infer="multiturn", params={"seed": 1, "max_tokens": 8, "gateway": {"explain": True}}),
        {"messages": ASK, "seed": 2}, "/v1/chat/completions",
        {"seed": 2, "max_tokens": 8, "gateway": {"explain": True, "turns": {"mode": "every"}}, "messages": ASK,
         "model": "m"},
    ),
    "evidence of a chat": (
        RowForm(model="m", evidence=True), {"messages": ASK}, "/v1/chat/completions",
        {"messages": ASK, "model": "m", "logprobs": True, "top_logprobs": 2, "return_token_ids": True},
    ),
    "evidence of a text": (
        RowForm(model="m", evidence=True), {"prompt": "1+1="}, "/v1/completions",
        {"prompt": "1+1=", "model": "m", "logprobs": 2, "return_token_ids": True},
    ),
    "columns that are not sent": (RowForm(model="m", keep=("answer",)), {"messages": ASK, "answer": "2"},
                                  "/v1/chat/completions", {"messages": ASK, "model": "m"}),
    "a kept column called url": (RowForm(model="m", keep=("url",)), {"messages": ASK, "url": "http://x"},
                                 "/v1/chat/completions", {"messages": ASK, "model": "m"}),
    "a kept field that only the operator may set": (
        RowForm(model="m", keep=("api_key",)), {"messages": ASK, "api_key": "k"}, "/v1/chat/completions",
        {"messages": ASK, "model": "m"},
    ),
    "sent labels": (
        RowForm(model="m", send=("metadata",)), {"messages": ASK, "metadata": {"a": "b"}}, "/v1/chat/completions",
        {"messages": ASK, "metadata": {"a": "b"}, "model": "m"},
    ),
    "a sent field of an engine that is a usual column": (
        RowForm(model="m", send=("regex",)), {"messages": ASK, "regex": "a+"}, "/v1/chat/completions",
        {"messages": ASK, "regex": "a+", "model": "m"},
    ),
    **{f"an answer with {name}": (PLAIN, {"messages": TUNING, name: value}, "/v1/chat/completions",
                                  {"messages": TUNING, name: value, "model": "m"})
       for name, value in {"continue_final_message": True, "add_generation_prompt": False, "prompt_logprobs": 0,
                           "gateway": {"turns": {"questions": ["x"]}}}.items()},
    "an answer that the model continues": (
        RowForm(model="m", params={"continue_final_message": True}), {"messages": TUNING}, "/v1/chat/completions",
        {"messages": TUNING, "continue_final_message": True, "model": "m"},
    ),
    "an answer that is a prefix": (
        PLAIN, {"messages": [*ASK, {**TUNING[1], "prefix": True}]}, "/v1/chat/completions",
        {"messages": [*ASK, {**TUNING[1], "prefix": True}], "model": "m"},
    ),
    "an answer in a dialogue": (
        RowForm(model="m", infer="multiturn"), {"messages": TUNING}, "/v1/chat/completions",
        {"messages": TUNING, "gateway": {"turns": {"mode": "every"}}, "model": "m"},
    ),
    **{f"the field {name} of a message": (PLAIN, {"messages": [{"role": "tool", name: "x"}]}, "/v1/chat/completions",
                                          {"messages": [{"role": "tool", name: "x"}], "model": "m"})
       for name in ("content", "name", "tool_calls", "tool_call_id", "function_call", "reasoning_content", "reasoning",
                    "thinking", "refusal", "audio", "cache_control", "annotations", "fallback_role", "prefix")},
    **{f"the field {name} of a part": (PLAIN, {"messages": [{"role": "user", "content": [{"type": "x", name: "x"}]}]},
                                       "/v1/chat/completions",
                                       {"messages": [{"role": "user", "content": [{"type": "x", name: "x"}]}],
                                        "model": "m"})
       for name in ("text", "image_url", "video_url", "audio_url", "input_audio", "file", "refusal", "cache_control")},
}  # fmt: skip


@pytest.mark.parametrize(("form", "line", "url", "body"), ROWS.values(), ids=ROWS)
def test_a_line_becomes_a_request(form: RowForm, line: dict[str, Any], url: str, body: dict[str, Any]) -> None:
    row = form.row(7, line)
    assert (row.url, row.body) == (url, body)


def test_a_row_has_its_own_id_or_that_of_its_line() -> None:
    assert PLAIN.row(7, {"custom_id": "a", "messages": ASK}).custom_id == "a"
    assert PLAIN.row(7, {"messages": ASK}).custom_id == "line-7"


def test_a_kept_column_of_a_prompt_is_also_a_variable() -> None:
    row = RowForm(model="m", prompt="sums", keep=("answer", "absent")).row(1, {"question": "1+1=?", "answer": "2"})
    assert row.kept == {"answer": "2"}
    assert row.body["gateway"]["prompt"]["variables"] == {"question": "1+1=?", "answer": "2"}


REFUSED: dict[str, tuple[RowForm, Any, str]] = {
    "no known shape": (PLAIN, {"question": "1+1=?"}, 'the line has question; a request has "messages" or "prompt"'),
    "no model": (RowForm(), {"messages": ASK}, "give --model"),
    "two models": (PLAIN, {"messages": ASK, "model": "x"}, "another model than --model m"),
    "an empty id": (PLAIN, {"messages": ASK, "custom_id": ""}, "custom_id must be a text"),
    "a number as id": (PLAIN, {"messages": ASK, "custom_id": 5}, "custom_id must be a text"),
    "a stream": (PLAIN, {"messages": ASK, "stream": True}, "cannot be streamed"),
    "a batch line with GET": (PLAIN, {"url": "/v1/models", "method": "GET", "body": {}}, '"method" must be "POST"'),
    "a batch line with a host": (PLAIN, {"url": "http://x/v1/y", "body": {}}, '"url" must be the path of an endpoint'),
    "a batch line with a query": (
        PLAIN,
        {"url": "/v1/chat/completions?x=1", "body": {"messages": ASK, "text": "2"}},
        'not "/v1/chat/completions?x=1" (did you mean "/v1/chat/completions"?)',
    ),
    "a batch line with a final slash": (
        PLAIN,
        {"url": "/v1/completions/", "body": {"prompt": "x", "input": "2"}},
        'not "/v1/completions/"',
    ),
    "a batch line for an unknown endpoint": (PLAIN, {"url": "/v1/nowhere", "body": {}}, 'not "/v1/nowhere"'),
    "a batch line with a number as url": (PLAIN, {"url": 5, "body": {}}, '"url" must be the path of an endpoint'),
    "a batch line without a body": (PLAIN, {"url": "/v1/embeddings"}, 'a batch line "url" and "body"'),
    "a batch line with a text as body": (PLAIN, {"url": "/v1/embeddings", "body": "x"}, '"body" must be an object'),
    "a column called url": (PLAIN, {"messages": ASK, "url": "http://x"}, "with --keep url, or send it"),
    "an answer in candidates of messages": (
        RowForm(model="m", infer="ppl"),
        {"candidates": {"A": [{**ASK[0], "gold": 1}]}},
        "candidates.A[0].gold is not",
    ),
    "an answer in the context of candidates": (
        RowForm(model="m", infer="ppl"),
        {"candidates": {"A": "x"}, "context": [{**ASK[0], "gold": 1}]},
        "context[0].gold is not",
    ),
    "a sent field that only the operator may set": (
        RowForm(model="m", send=("extra_body",)),
        {"messages": ASK, "extra_body": {}},
        '"extra_body" can only be set by the operator',
    ),
    **{
        f"the usual column {name}": (PLAIN, {"messages": ASK, name: "x"}, f'"{name}" is a field of some requests, but')
        for name in ("documents", "grammar", "json_schema", "regex")
    },
    "a batch line with a column": (PLAIN, {"url": "/v1/x", "body": {}, "answer": 2}, '"answer" is not a key'),
    "a field that the prompt fills": (
        RowForm(model="m", prompt="p", params={"gateway": {"prompt": {}}}),
        {},
        "--param gateway.prompt is a field",
    ),
    "a field that the turns fill": (
        RowForm(infer="multiturn", params={"gateway": {"turns": {}}}),
        {},
        "--param gateway.turns is a field",
    ),
    "the field of a scored prompt": (
        RowForm(model="m", prompt="p", infer="ppl", params={"prompt": {}}),
        {},
        "--param prompt is a field",
    ),
    "fields of the gateway that are a text": (
        RowForm(model="m", params={"gateway": "x"}),
        {"messages": ASK},
        '"gateway" must be an object',
    ),
    "turns of its own": (
        RowForm(model="m", infer="multiturn"),
        {"gateway": {"turns": {"mode": "last"}}},
        "sets gateway.turns, but",
    ),
    "evidence of embeddings": (
        RowForm(evidence=True),
        {"url": "/v1/embeddings", "body": {"model": "e", "input": "hi"}},
        "--evidence applies only to /v1/chat/completions and /v1/completions, not to /v1/embeddings",
    ),
    "evidence and a field of its own": (
        RowForm(model="m", evidence=True),
        {"messages": ASK, "logprobs": False},
        '--evidence sets "logprobs", but the line or a --param sets it too',
    ),
    "options that are a text": (RowForm(infer="multiturn"), {"gateway": "x"}, '"gateway" must be an object'),
}


@pytest.mark.parametrize(("form", "line", "message"), REFUSED.values(), ids=REFUSED)
def test_a_line_that_is_no_request_is_refused(form: RowForm, line: Any, message: str) -> None:
    with pytest.raises(RowProblem) as refused:
        form.row(1, line)
    assert message in str(refused.value)


def write(folder: Path, *lines: object) -> Path:
    path = folder / "data.jsonl"
    path.write_text("".join([f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines]))
    return path


def test_a_survey_counts_rows_and_has_the_first_of_each_model(tmp_path: Path) -> None:
    lines = [{"messages": ASK, "model": model} for model in ("a", "b", "a")]
    path = write(tmp_path, *lines, "", {"prompt": "x", "model": "a"}, "  ")
    found = survey(path, RowForm())
    chat, text = "/v1/chat/completions", "/v1/completions"
    assert found.rows == 4
    assert {key: row.line for key, row in found.first.items()} == {(chat, "a"): 1, (chat, "b"): 2, (text, "a"): 5}
    assert [row.custom_id for row in read_rows(path, RowForm())] == ["line-1", "line-2", "line-3", "line-5"]


def test_a_survey_lists_every_problem_with_its_line(tmp_path: Path) -> None:
    row = {"custom_id": "a", "messages": ASK}
    path = write(tmp_path, row, "{", row, {"custom_id": "line-9", "messages": ASK}, 5)
    with pytest.raises(CommandError) as refused:
        survey(path, PLAIN)
    count, first, second, third = str(refused.value).splitlines()
    assert first.startswith(f"{path}:2: the line is not JSON (column 1: ")
    assert second == f'{path}:3: line 1 also has custom_id "a"; change one'
    assert third.startswith(f"{path}:5: the line must contain a JSON object, such as ")
    assert count == f"{path} has 3 problems"


@pytest.mark.parametrize("lines", [[], ["", " "]], ids=["empty", "blank lines"])
def test_a_file_without_rows_is_refused(lines: list[str], tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no rows"):
        survey(write(tmp_path, *lines), PLAIN)


def test_a_kept_column_may_be_in_some_rows_only(tmp_path: Path) -> None:
    path = write(tmp_path, {"messages": ASK}, {"messages": ASK, "answer": 1})
    assert survey(path, RowForm(model="m", keep=("answer",))).rows == 2


def test_rows_are_equal_values() -> None:
    assert PLAIN.row(1, {"prompt": "x"}) == DataRow("line-1", 1, "/v1/completions", {"prompt": "x", "model": "m"})


def test_examples_are_read_from_their_lines(tmp_path: Path) -> None:
    assert read_examples(write(tmp_path, {"question": "a"}, "", {"question": "b"})) == (
        {"question": "a"},
        {"question": "b"},
    )


@pytest.mark.parametrize("line", ["{", "[]"])
def test_a_wrong_example_is_named_by_its_line(line: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"data\.jsonl:2: "):
        read_examples(write(tmp_path, {}, line))


def test_a_bad_line_in_a_file_named_as_a_table_is_named(tmp_path: Path) -> None:
    data = tmp_path / "rows.csv"
    data.write_text('{"messages": [{"role": "user", "content": "1"}]}\n{"messages": [\n', encoding="utf-8")
    with pytest.raises(CommandError, match=r"rows\.csv:2: the line is not JSON"):
        survey(data, PLAIN)
