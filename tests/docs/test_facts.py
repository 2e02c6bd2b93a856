"""Numbers in the sentences of the pages are those of the code, and statements about files are true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gateway.backend.embedded.engine import MAX_RUNNING, MAX_STEP_TOKENS, MAX_WAITING
from gateway.backend.embedded.generation import PROMPT_CHUNK
from gateway.backend.http_client.client import STALE
from gateway.calls.preparation.prepare import MAX_PROMPT
from gateway.calls.scoring.loglikelihood import AT_ONCE
from gateway.edge.http1.connection import MAX_FIELDS as MAX_HEAD_FIELDS
from gateway.edge.http1.connection import MAX_HEAD
from gateway.edge.http1.state import ConnectionTimeouts
from gateway.server.memory import KEPT
from gateway.server.processes.supervisor import PAUSES
from gateway.telemetry import log_writer
from gateway.wire.json import MAX_FIELDS, MAX_ITEMS, MAX_NODES
from gateway.wire.request_fields import MAX_STOP_LENGTH, MAX_STOPS
from metatemplate.answers.tool_calls.scanner import MAX_CALLS
from metatemplate.files.yaml import MAX_BYTES
from metatemplate.values.dialogue import MAX_TURNS
from metatemplate.values.json_values import MAX_DEPTH
from tests.cli.command import command
from tests.support.engines.engine import ENGINES
from tests.support.serving import ROOT

KIB, MIB = 1024, 1024**2
TIMEOUTS = ConnectionTimeouts()

FACTS = (
    ("errors.md", f"nests deeper than {MAX_DEPTH} levels"),
    ("errors.md", f"more than {MAX_NODES:,} objects, lists and strings, or more than {MAX_FIELDS} fields"),
    ("errors.md", f"did not arrive within {TIMEOUTS.head:g} s, or the body within {TIMEOUTS.body:g} s"),
    ("http.md", f"up to {MAX_PROMPT:,} characters, or {MAX_ITEMS:,} token ids"),
    (
        "http.md",
        f"{MAX_NODES:,} objects, lists and strings (keys included), as many decimal numbers, and {MAX_FIELDS} fields",
    ),
    ("http.md", f"`stop` takes up to {MAX_STOPS['chat']} strings of at most {MAX_STOP_LENGTH} characters"),
    ("http.md", f"`stop` accepts up to {MAX_STOPS['completions']} strings"),
    ("prompts.md", f"at most {MAX_TURNS} turns"),
    ("loglikelihood.md", f"up to {AT_ONCE} are sent at the same time"),
    ("architecture.md", f"at most {AT_ONCE} at once"),
    ("tools.md", f"up to {MAX_CALLS} calls"),
    ("configuration.md", f"at most {MAX_BYTES // MIB} MiB"),
    ("embedded.md", f"{MAX_RUNNING} choices are computed together, and up to {MAX_WAITING} wait"),
    ("embedded.md", f"at most {MAX_STEP_TOKENS} tokens, of which at most {PROMPT_CHUNK} are of one prompt"),
    ("operations.md", f"| A request's head | {MAX_HEAD // KIB} KiB, {MAX_HEAD_FIELDS} fields |"),
    ("operations.md", f"| An idle connection | {TIMEOUTS.idle:g} s |"),
    ("operations.md", f"Up to {KEPT // MIB} MiB of freed memory"),
    ("operations.md", f"growing pauses (up to {PAUSES[-1]:g} s)"),
    ("failures.md", f"closes within {STALE:g} s after the request"),
    ("operations.md", f"up to {log_writer.WRITE_SECONDS:g} s and written together"),
    ("operations.md", f"up to {log_writer.MAX_WAITING} lines wait"),
)


@pytest.mark.parametrize(("page", "fact"), FACTS, ids=[f"{page}: {fact[:40]}" for page, fact in FACTS])
def test_a_number_of_a_page_is_that_of_the_code(page: str, fact: str) -> None:
    assert fact in (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_a_broken_template_that_no_model_uses_is_a_problem_for_check_only(tmp_path: Path) -> None:
    (tmp_path / "meta_templates").mkdir()
    (tmp_path / "meta_templates/broken.yaml").write_text("round: 5\n", encoding="utf-8")
    (tmp_path / "gateway.yaml").write_text(
        "models:\n  mine: {template: chatml, targets: [{speaks: scripted, script: answers.yaml}]}\n", encoding="utf-8"
    )
    (tmp_path / "answers.yaml").write_text("[]\n", encoding="utf-8")
    checked = command(tmp_path, "check")
    assert (checked.returncode, b"meta_templates/broken.yaml" in checked.stderr) == (1, True)
    assert command(tmp_path, "render", "mine", "-m", "user:hi").returncode == 0


STARTED = {"vLLM": "vllm"}
"""Engine in the pages → the engine of the tests that is started with the options that the pages show."""
NOT_STARTED = {"llama.cpp"}
"""Engines that no test starts: the tests have llama-cpp-python, whose server has other options."""
START = re.compile(r"[Ss]tart (\w[\w.]*) with `(--[^`]+)`")


def test_the_engine_tests_start_engines_with_the_options_that_the_pages_show() -> None:
    pages = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md"))]
    shown = [found.groups() for text in pages for found in START.finditer(text)]
    assert {engine for engine, _ in shown} == {*STARTED, *NOT_STARTED}
    for engine, options in shown:
        if engine in NOT_STARTED:
            continue
        command_of = ENGINES[STARTED[engine]].command
        assert command_of is not None
        started, words = command_of(Path("bin"), 8000), shlex.split(options)
        assert any(started[at : at + len(words)] == words for at in range(len(started))), options
