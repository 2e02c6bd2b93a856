"""Shell completion, in a real shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.process import environment

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
}


@pytest.mark.parametrize(("words", "completions"), CASES.values(), ids=CASES)
def test_bash_completes(tmp_path: Path, words: str, completions: str) -> None:
    program = tmp_path / "gateway"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gateway "$@"\n')
    program.chmod(0o755)
    script = COMPLETE.format(words=words, index=len(words.split()))
    ended = subprocess.run(
        ["bash", "-c", script],
        env=environment(PATH=f"{tmp_path}:/usr/bin:/bin"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.stdout, ended.returncode) == (f"{completions}\n", 0), ended.stderr
