"""The ids of a conversation are those that mistral-common makes of it, with its own tokenizer and no chat template."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.exact_ids.compare import Subject, conversations
from tests.exact_ids.conftest import subject_of
from tests.exact_ids.environment.convert import MISTRAL
from tests.exact_ids.tokenizers import INSTALL, tokenizers_folder

PROGRAM = Path(__file__).parent / "environment" / "mistral_ids.py"
NUMBER = 100


@pytest.mark.parametrize("name", MISTRAL)
def test_a_conversation_has_the_ids_of_mistral_common(name: str) -> None:
    python = tokenizers_folder() / ".venv" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"mistral-common is not installed; run {INSTALL}")
    subject: Subject = subject_of(name)
    talks = list(conversations(subject, NUMBER, 1, hostile=False))
    for message in [message for talk in talks for message in talk if message["role"] == "assistant"]:
        message["content"] = message["content"].rstrip()  # mistral-common removes these blanks, its template does not
    lines = "".join(f"{json.dumps(talk)}\n" for talk in talks)
    run = subprocess.run([python, PROGRAM, MISTRAL[name]], input=lines, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    theirs = [json.loads(line) for line in run.stdout.splitlines()]
    ours = [list(subject.encode(subject.render(talk).segments or ())) for talk in talks]
    assert ours == theirs
