"""The lock files: what the demo needs, what the gateway can use, what the tests need, and the documentation site's."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FILES = {
    "run": "requirements.lock",
    "all": "requirements-all.lock",
    "dev": "requirements-dev.lock",
    "docs": "requirements-docs.lock",
}
LOCKS = {name: (ROOT / file).read_text(encoding="utf-8") for name, file in FILES.items()}


def pins(lock: str) -> set[str]:
    """Each package with its version and the platforms that it is for."""
    return set(re.findall(r"^(\S.*?) *\\$", lock, re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    """The names of the packages, without versions and extras."""
    return {re.split(r"[\[<>=! ]", one)[0] for one in requirements}


def test_a_smaller_lock_file_has_the_same_versions_as_the_larger_one() -> None:
    versions = {
        name: {re.sub(r"\[.*\]", "", pin.partition(" ")[0]) for pin in pins(lock)} for name, lock in LOCKS.items()
    }
    assert versions["run"] < versions["all"] < versions["dev"]


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_every_package_has_hashes_and_no_address_of_an_index(lock: str) -> None:
    entries = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)[1:]
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in lock


def test_the_demo_needs_no_extra() -> None:
    locked = names(list(pins(LOCKS["run"])))
    assert names(PROJECT["project"]["dependencies"]) <= locked
    assert not locked & {"litellm", "boto3", "openai", "pytest"}
