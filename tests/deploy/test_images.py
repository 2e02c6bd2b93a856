"""``scripts/unpinned-images`` warns of images without a digest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "@sha256:" + "0f" * 32

LINES = {
    "a tag": ("FROM python:3.13-slim AS build", True),
    "a digest": (f"FROM python:3.13-slim{DIGEST} AS build", False),
    "a tag in an argument": ("ARG BASE=python:3.13-slim", True),
    "a digest in an argument": (f"ARG BASE=python:3.13-slim{DIGEST}", False),
    "an argument as the base": ("FROM ${BASE} AS build", False),
    "another argument": ("ARG LOCK=requirements-all.lock", False),
    "half of a digest": ("FROM python:3.13-slim@sha256:0f0f", True),
    "a service": ("    image: prom/prometheus:v3.4.2", True),
    "a service with a digest": (f"    image: prom/prometheus:v3.4.2{DIGEST}", False),
    "an image that is built here": ("    image: meta-gateway:0.1.0", False),
    "another line": ("RUN pip install build", False),
}


@pytest.mark.parametrize(("line", "warns"), LINES.values(), ids=LINES)
def test_an_image_without_a_digest_has_a_warning(line: str, warns: bool, tmp_path: Path) -> None:
    file = tmp_path / "Containerfile"
    file.write_text(f"# comment\n{line}\n")
    done = subprocess.run([ROOT / "scripts/unpinned-images", file], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{file}:2:{line}: warning: no digest") if warns else not done.stdout
