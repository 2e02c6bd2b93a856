"""The public conformance cases, run by the script that users run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = Path(__file__).resolve().parent / "opencompass.jsonl"

KINDS = {
    "lm_parse": 48,
    "api_parse": 29,
    "default_chat_meta": 1,
    "chat_parse": 12,
    "to_chat": 3,
    "promptlist": 5,
    "to_messages": 5,
    "extract_role_pred": 1,
}


def conformance(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "conformance"), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", check=False)


def test_every_public_case_passes_from_any_folder(tmp_path: Path) -> None:
    done = conformance(str(CASES), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sorted(lines[:-1]) == sorted(f"{kind} {count}/{count}" for kind, count in KINDS.items())
    assert lines[-1] == "total 104/104"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_can_be_run_alone(kind: str) -> None:
    done = conformance("--kinds", kind, str(CASES))
    assert done.stdout.splitlines() == [f"{kind} {KINDS[kind]}/{KINDS[kind]}", f"total {KINDS[kind]}/{KINDS[kind]}"]


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
                case("later", "fewshot", {}, {"result": "x", "type": "str"}),
            ]
        ),
        encoding="utf-8",
    )
    done = conformance("--verbose", str(file))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "extract_role_pred 2/6",
        "fewshot 0/1 not built",
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
        "NOT BUILT fewshot later",
        "total 2/7",
    ]


def test_a_missing_file_is_named() -> None:
    done = conformance("nowhere.jsonl")
    assert done.returncode == 2
    assert "nowhere.jsonl: no such file" in done.stderr
