"""The environment with Envoy, kubernetes-validate and the types of custom resources; ``install`` makes it."""

from __future__ import annotations

import pytest

from tests.support.serving import ROOT

PLACE = ROOT / ".venv-kubernetes"


def needed(program: str) -> str:
    """Return the path of one of its files. Skip the test if it is not installed."""
    path = PLACE / program
    if not (PLACE / ".ready").exists() or not path.exists():
        pytest.skip(f"needs {program}; tests/deploy/kubernetes/environment/install installs it")
    return str(path)
