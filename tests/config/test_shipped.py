"""The shipped templates and policies are valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.library import Library, find_template, shipped_folder
from gateway.config.schema.kinds import FILE_NAME
from metatemplate.files.reader import POLICIES, TEMPLATES, Files

FOLDERS = (TEMPLATES, POLICIES)
NAMES = [(kind, path.stem) for kind in FOLDERS for path in sorted(shipped_folder(kind).glob("*.yaml"))]


@pytest.mark.parametrize(("kind", "name"), NAMES, ids=lambda value: str(value))
def test_a_shipped_file_loads_and_its_examples_come_out(kind: str, name: str, tmp_path: Path) -> None:
    files = Files(tmp_path)
    library = Library(files)
    read = library.template if kind == TEMPLATES else library.policy
    found = read(name, files.add_problem(tmp_path / "gateway.yaml"))
    assert [str(problem) for problem in files.problems] == []
    assert found is not None
    assert found.description


@pytest.mark.parametrize("name", [name for kind, name in NAMES if kind == TEMPLATES])
def test_a_shipped_template_names_the_special_tokens_of_its_family_or_says_that_they_are_unknown(name: str) -> None:
    spec = find_template(name)
    assert spec.makes_messages == (spec.markers is None)


def test_the_folders_hold_nothing_else() -> None:
    for kind in FOLDERS:
        for path in shipped_folder(kind).iterdir():
            assert path.suffix == ".yaml"
            assert FILE_NAME.fullmatch(path.stem)
    assert "chat" not in {path.stem for path in shipped_folder(TEMPLATES).iterdir()}
    assert {"default", "eval", "production"} <= {path.stem for path in shipped_folder(POLICIES).iterdir()}
