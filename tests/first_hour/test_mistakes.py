"""What a newcomer sees after each mistake of ``mistakes.yaml``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.first_hour.world import Mistake, read_mistakes, serving, what_is_shown
from tests.support.serving import Gateway

MISTAKES = read_mistakes()
AT_LEAST = 276


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("first_hour")) as running:
        yield running


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.area}: {mistake.mistake}")
def test_a_mistake_is_answered_as_recorded(mistake: Mistake, served: Gateway, tmp_path: Path) -> None:
    assert what_is_shown(mistake, tmp_path, served) == mistake.shows, "python -m tests.first_hour.record"


def test_a_newcomer_knows_what_to_do_after_nearly_every_mistake() -> None:
    ratings = [mistake.rating for mistake in MISTAKES]
    assert len(ratings) >= AT_LEAST
    assert min(ratings) >= 1
    assert sum(ratings) / len(ratings) >= 1.9
