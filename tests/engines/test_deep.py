"""``gateway check --live --deep`` on real engines: right settings have the red lines of ``deep.json`` and no other.

Each wrong setting is named with evidence. ``python -m tests.engines.deep_table`` makes the table anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engines.deep_table import (
    CHECKED,
    MISTAKES,
    SAME_NAME,
    TABLE,
    Report,
    check,
    configuration,
    markdown,
    mistaken,
    other_weights,
    red,
    verdicts,
)
from tests.support.engines.engine import ROOT, Engine, engines_folder

FOUND: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))

pytestmark = pytest.mark.timeout(1800)  # vLLM takes minutes to start on a busy machine


@dataclass(frozen=True)
class Checked:
    """A running engine, and the report of the first check, which is saved in a file."""

    engine: Engine
    url: str
    report: Report
    saved: Path


@pytest.fixture(scope="session", params=FOUND)
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checked]:
    engine, folder = CHECKED[request.param], engines_folder()
    if not engine.is_installed(folder):
        pytest.skip(f"{engine.title} is not installed in {folder}; see docs/clients.md")
    place = tmp_path_factory.mktemp(engine.name)
    saved = place / "saved.json"
    with engine.running(folder, place / "engine") as url:
        (place / "right").mkdir()
        report = check(place / "right", configuration(engine, url), "--save", str(saved))
        yield Checked(engine, url, report, saved)


def test_right_settings_have_the_verdicts_of_the_table(checked: Checked) -> None:
    expected = {probe: found["verdict"] for probe, found in FOUND[checked.engine.name]["probes"].items()}
    assert verdicts(checked.report) == expected, checked.report
    assert checked.report["requests"] <= 60


@pytest.mark.parametrize("mistake", [mistake for mistake in MISTAKES if mistake != "other weights"])
def test_a_wrong_setting_is_named(checked: Checked, tmp_path: Path, mistake: str) -> None:
    name = checked.engine.name
    found = red(mistaken(checked.engine, checked.url, tmp_path / "wrong", mistake))
    assert set(found) == set(FOUND[name]["mistakes"][mistake])
    assert (MISTAKES[mistake] in found) == (MISTAKES[mistake] in FOUND[name]["mistakes"][mistake])


def test_other_weights_are_named(checked: Checked, tmp_path: Path) -> None:
    if checked.engine.name not in SAME_NAME:
        pytest.skip("the engine's name of a model is its folder, so other weights have another name")
    with other_weights(checked.engine, tmp_path).running(engines_folder(), tmp_path / "engine") as url:
        (tmp_path / "weights").mkdir()
        config = configuration(checked.engine, url)
        found = red(check(tmp_path / "weights", config, "--against", str(checked.saved)))
    assert MISTAKES["other weights"] in found


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_setting_is_named_on_at_least_three_engines(mistake: str) -> None:
    named = [name for name, row in FOUND.items() if MISTAKES[mistake] in row["mistakes"].get(mistake, {})]
    assert len(named) >= 3, named


def test_the_documentation_has_the_table() -> None:
    assert markdown(FOUND) in (ROOT / "docs" / "engine-check.md").read_text(encoding="utf-8")
