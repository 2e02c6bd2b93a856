"""Output files with values of other types: each command reads them or refuses the line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.report import report_of
from gateway.evaluate.analysis.rows import read_output
from gateway.evaluate.analysis.why import explain
from gateway.viewer.runs.findings import findings_of
from tests.cli.command import command

CHAT = {
    "custom_id": "a", "error": None, "row": {"answer": "4"},
    "gateway": {
        "model": "m", "seconds": 0.5, "notices": ["answer_cut: choices[0]=context"], "template": "t@sha256:1",
        "prompt_sha256": "h", "target": "m/0", "attempts": 1, "cache": "", "dataset_prompt": "",
    },
    "response": {"status_code": 200, "request_id": "r", "body": {"choices": [{
        "index": 0, "finish_reason": "stop",
        "message": {
            "content": "4", "reasoning_content": "hm", "refusal": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        "logprobs": {"content": [
            {"token": "4", "logprob": -0.1, "top_logprobs": [{"token": "4", "logprob": -0.1, "bytes": None}]}
        ]},
    }]}},
}  # fmt: skip
COMPLETION = {
    "custom_id": "a",
    "error": None,
    "gateway": {"model": "m"},
    "response": {
        "status_code": 200,
        "body": {
            "choices": [
                {
                    "index": 0,
                    "text": "t",
                    "finish_reason": "stop",
                    "logprobs": {
                        "tokens": ["t"],
                        "token_logprobs": [-1.0],
                        "top_logprobs": [{"t": -1.0}],
                        "text_offset": [0],
                    },
                }
            ]
        },
    },
}
FAILED = {"custom_id": "a", "response": None, "error": {"code": "timeout"}, "gateway": {"model": "m"}}
REFUSED = "this line is not from `gateway run`; give the output (--out) of a run"
OTHERS: tuple[Any, ...] = (["a"], {"a": 1}, [], 5, None, True, [None])


def written(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value) + "\n")
    return path


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value in a line, as keys and indexes."""
    yield place
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*place, key))


def replaced(value: Any, place: tuple[Any, ...], new: object) -> Any:
    if not place:
        return new
    whole = inner = deepcopy(value)
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = new
    return whole


READERS: dict[str, Callable[[Path, Path], object]] = {
    "report": lambda one, other: report_of(read_output(one)).as_json(),
    "report, page": lambda one, other: findings_of(read_output(one)),
    "why, first": lambda one, other: explain(read_output(one), read_output(other)).as_json(),
    "why, second": lambda one, other: explain(read_output(other), read_output(one)).as_json(),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("line", [CHAT, COMPLETION, FAILED], ids=["chat", "completion", "failed"])
def test_a_value_of_another_type_is_read_or_refused(line: dict[str, Any], reader: str, tmp_path: Path) -> None:
    other = written(tmp_path / "other.jsonl", COMPLETION if line is CHAT else CHAT)
    wrong = []
    for place in places(line):
        for new in OTHERS:
            one = written(tmp_path / "one.jsonl", replaced(line, place, new))
            try:
                READERS[reader](one, other)
            except Exception as error:
                if not (isinstance(error, InvalidValue) and error.message.endswith(f"one.jsonl:1: {REFUSED}")):
                    wrong.append((place, new, error))
    assert wrong == []


def test_why_refuses_an_id_that_is_no_text(tmp_path: Path) -> None:
    written(tmp_path / "types.jsonl", {**CHAT, "custom_id": ["a"]})
    written(tmp_path / "ok.jsonl", CHAT)
    ended = command(tmp_path, "why", "types.jsonl", "ok.jsonl")
    assert ended.returncode == 2
    assert ended.stderr.decode().strip() == f"error: types.jsonl:1: {REFUSED}"


def test_tool_calls_and_errors_of_other_servers_are_read(tmp_path: Path) -> None:
    place = ("response", "body", "choices", 0, "message", "tool_calls", 0, "function", "arguments")
    called = written(tmp_path / "called.jsonl", replaced(CHAT, place, {"a": 1}))
    failed = written(tmp_path / "failed.jsonl", replaced(FAILED, ("error", "code"), 400))
    assert report_of(read_output(called)).classes == {"bad tool call": 1}
    assert [row.error for row in read_output(failed)] == ["400"]
