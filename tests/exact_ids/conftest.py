"""The tokenizers for these tests: that of the demo model, and those that are installed."""

from __future__ import annotations

import pytest

from tests.exact_ids.compare import Subject
from tests.exact_ids.tokenizers import INSTALL, PUBLISHED, folder_of


def subject_of(name: str) -> Subject:
    """Return a tokenizer, or skip the test."""
    folder = folder_of(name)
    if folder is None:
        pytest.skip(f"the tokenizer {name} is not installed; run {INSTALL}")
    return Subject(folder)


@pytest.fixture(scope="session", params=["demo", *PUBLISHED])
def subject(request: pytest.FixtureRequest) -> Subject:
    return subject_of(request.param)
