"""``import gateway`` and ``gateway --help`` import no library."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.journeys.process import environment

LIBRARIES = {
    "litellm",
    "aiohttp",
    "uvicorn",
    "pydantic",
    "starlette",
    "prometheus_client",
    "numpy",
    "tokenizers",
    "yaml",
    "jinja2",
    "orjson",
}

HELP = "from gateway.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"


@pytest.mark.parametrize("statement", ["import gateway", HELP], ids=["import", "--help"])
def test_no_library_is_imported(statement: str) -> None:
    script = f"{statement}\nimport sys; print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True, timeout=60
    )
    assert "gateway" in ended.stderr.split()
    assert not LIBRARIES & set(ended.stderr.split())
