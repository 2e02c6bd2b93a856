"""Shell completion, in a real shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.process import environment
from tests.support.serving import write_files

COMPLETE = """\
eval "$(_GATEWAY_COMPLETE=bash_source gateway)"
COMP_WORDS=(gateway {words}); COMP_CWORD={index}
_gateway_completion gateway
echo "${{COMPREPLY[@]}}"
"""

CASES = {  # words, the completions of the last one
    "a verb": ("pari", "parity"),
    "an option": ("render --seg", "--segments"),
    "a value": ("import --kind la", "lazyllm"),
    "a model": ("render my-", "my-model"),
    "a model of the named configuration": ("render --config other/gateway.yaml the", "their-model"),
    "a template": ("templates vicu", "vicuna"),
    "a template of one's own": (
        "render --template mi",
        "mine minicpm ministral-3 ministral-3-reasoning mistral-instruct",
    ),
    "a model or a template": (
        "diff m",
        "metamath mine minicpm ministral-3 ministral-3-reasoning mistral-instruct moss moss-thoughts my-model",
    ),
    "a dataset prompt": ("run rows.jsonl --prompt su", "sums"),
    "a page": ("docs rec", "recordings"),
}
FILES = {
    "gateway.yaml": "models: {my-model: {templat: mine}}",  # a problem for every other verb
    "other/gateway.yaml": "models: {their-model: {}}",
    "prompts/sums.yaml": "",
    "meta_templates/mine.yaml": "",
}


@pytest.mark.parametrize(("words", "completions"), CASES.values(), ids=CASES)
def test_bash_completes(tmp_path: Path, words: str, completions: str) -> None:
    write_files(tmp_path, FILES)
    program = tmp_path / "gateway"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gateway "$@"\n')
    program.chmod(0o755)
    script = COMPLETE.format(words=words, index=len(words.split()))
    ended = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment(PATH=f"{tmp_path}:/usr/bin:/bin"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.stdout, ended.returncode) == (f"{completions}\n", 0), ended.stderr
