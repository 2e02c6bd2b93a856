"""The environment that lm-eval, EvalScope, inspect-ai and AISBench share in the tests; ``install`` makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.serving import ROOT

PLACE = ROOT / ".venv-harnesses"


def installed_bin() -> Path:
    """Return the folder of its programs. Skip the test if it is not installed."""
    if not (PLACE / ".ready").exists():
        pytest.skip("the harnesses are not installed; run tests/support/harnesses/environment/install")
    return PLACE / "bin"
