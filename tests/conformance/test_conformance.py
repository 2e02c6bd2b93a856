"""The public conformance cases, run by the script that users run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
CASES = HERE / "opencompass.jsonl"

REFERENCE_ONLY = (
    "chat_infer",
    "chat_parse",
    "default_chat_meta",
    "extract",
    "extract_role_pred",
    "promptlist",
    "response",
    "to_chat",
    "to_messages",
)
KINDS = {
    "lm_parse": 48,
    "api_parse": 29,
    "default_chat_meta": 1,
    "chat_parse": 12,
    "to_chat": 3,
    "promptlist": 5,
    "to_messages": 5,
    "extract_role_pred": 1,
    "prompt_template": 22,
    "fewshot": 27,
    "mm": 14,
    "multiturn": 10,
    "chat_infer": 3,
}


LAZYLLM = {  # file: how many cases of each kind
    "lazyllm.jsonl": {
        "prompter": 123,
        "response": 8,
        "prompt_keys": 6,
        "extract": 5,
        "trainable": 3,
        "render_tools": 2,
    },
    "lazyllm-0.1.2.jsonl": {"prompter": 89, "response": 8},
    "lazyllm-0.1.1.jsonl": {"prompter": 27},
}


def lines_of(counts: Mapping[str, int]) -> list[str]:
    """The lines of the kinds, in alphabetical order, and the total, if every case passes."""
    marks = dict.fromkeys(REFERENCE_ONLY, " (code of tests/support/reference)")
    apart = sum(count for kind, count in counts.items() if kind in marks)
    total = f"total {sum(counts.values())}/{sum(counts.values())}"
    lines = sorted([f"{kind} {count}/{count}{marks.get(kind, '')}" for kind, count in counts.items()])
    return [*lines, total + (f", {apart} of them code of tests/support/reference" if apart else "")]


def conformance(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "conformance"), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", check=False)


def test_every_public_case_passes_from_any_folder(tmp_path: Path) -> None:
    done = conformance(str(CASES), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    *kinds, total = done.stdout.splitlines()
    assert [*sorted(kinds), total] == lines_of(KINDS)
    assert total.startswith("total 180/180")


def test_the_further_cases_of_messages_separators_and_answers_pass() -> None:
    counts = {"raw_template": 10, "fewshot": 4, "prompt_template": 1, "multiturn": 1, "chat_infer": 1}
    *kinds, total = conformance(str(HERE / "opencompass-further.jsonl")).stdout.splitlines()
    assert [*sorted(kinds), total] == lines_of(counts)


@pytest.mark.parametrize("kind", ["fewshot", "promptlist"])
def test_a_kind_can_be_run_alone(kind: str) -> None:
    done = conformance("--kinds", kind, str(CASES))
    assert done.stdout.splitlines() == lines_of({kind: KINDS[kind]})


@pytest.mark.parametrize("name", LAZYLLM)
def test_every_case_of_a_lazyllm_release_passes(name: str) -> None:
    done = conformance(str(HERE / name))
    assert done.returncode == 0, done.stdout + done.stderr
    *kinds, total = done.stdout.splitlines()
    assert [*sorted(kinds), total] == lines_of(LAZYLLM[name])


def test_a_lazyllm_error_counts_by_its_words_unless_they_are_the_interpreters(tmp_path: Path) -> None:
    asked = {"cls": "ChatPrompter", "init": {"instruction": "{a} {b}"}, "call": {"input": {"b": "x"}}}
    row = {"kind": "prompter", "source": "lazyllm 1.4.0", "input": asked}
    cases = [
        {**row, "id": "words", "expected": {"error": "KeyError: 'a'"}, "compare": "exact"},
        {**row, "id": "other-words", "expected": {"error": "KeyError: 'z'"}, "compare": "exact"},
        {**row, "id": "class", "expected": {"error": "KeyError: 'z'"}, "compare": "error_type"},
        {**row, "id": "other-class", "expected": {"error": "TypeError: 'a'"}, "compare": "error_type"},
        {
            **row,
            "id": "one-of",
            "expected": {"any_of": [{"error": "KeyError: 'b'"}, {"error": "KeyError: 'a'"}]},
            "compare": "exact",
        },
        {**row, "id": "later", "kind": "online", "expected": {"result": ""}, "compare": "exact"},
    ]
    file = tmp_path / "cases.jsonl"
    file.write_text("\n".join(json.dumps(case) for case in cases), encoding="utf-8")
    assert conformance(str(file)).stdout.splitlines() == [
        "prompter 3/5",
        "online 0/1 not implemented",
        "FAILED prompter other-words",
        "FAILED prompter other-class",
        "NOT IMPLEMENTED online later",
        "total 3/6",
    ]


def case(name: str, kind: str, given: object, expected: object) -> str:
    return json.dumps({"id": name, "kind": kind, "source": "opencompass 0.5.4", "input": given, "expected": expected})


def test_failures_are_listed_and_shown(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    text = {"text": "x"}
    file.write_text(
        "\n".join(
            [
                case("right", "extract_role_pred", text, {"result": "x", "type": "str"}),
                case("wrong", "extract_role_pred", text, {"result": "y", "type": "str"}),
                case("wrong-type", "extract_role_pred", text, {"result": "x", "type": "list"}),
                case("rule", "extract_role_pred", text, {"error": "ValueError: no", "explicit": True}),
                case("accident", "extract_role_pred", text, {"error": "IndexError: no", "explicit": False}),
                case("bad-case", "extract_role_pred", {}, {"result": "x", "type": "str"}),
                case("later", "later_kind", {}, {"result": "x", "type": "str"}),
            ]
        ),
        encoding="utf-8",
    )
    done = conformance("--verbose", str(file))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "extract_role_pred 2/6 (code of tests/support/reference)",
        "later_kind 0/1 not implemented",
        "FAILED extract_role_pred wrong",
        '  expected {"result": "y", "type": "str"}',
        '  got      {"result": "x", "type": "str"}',
        "FAILED extract_role_pred wrong-type",
        '  expected {"result": "x", "type": "list"}',
        '  got      {"result": "x", "type": "str"}',
        "FAILED extract_role_pred rule",
        '  expected {"error": "ValueError: no", "explicit": true}',
        '  got      {"result": "x", "type": "str"}',
        "FAILED extract_role_pred bad-case",
        '  expected {"result": "x", "type": "str"}',
        """  got      {"crash": "KeyError('text')"}""",
        "NOT IMPLEMENTED later_kind later",
        "total 2/7, 2 of them code of tests/support/reference",
    ]


def test_a_missing_file_is_named() -> None:
    done = conformance("nowhere.jsonl")
    assert done.returncode == 2
    assert "nowhere.jsonl: no such file" in done.stderr
