"""``gateway docs``: all pages are listed, and a page is printed as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import command
from tests.support.serving import ROOT


def test_the_list_has_the_name_and_the_title_of_every_page(tmp_path: Path) -> None:
    ended = command(tmp_path, "docs")
    assert (ended.returncode, ended.stderr) == (0, b"")
    head, *rows = [line.split(maxsplit=1) for line in ended.stdout.decode().splitlines()]
    assert head == ["page", "title"]
    files = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(name for name, _ in rows) == sorted(path.with_suffix("").as_posix() for path in files)
    assert {"cli": "Commands", "harnesses/lm-eval": "lm-eval"}.items() <= dict(rows).items()


@pytest.mark.parametrize("name", ["templates", "templates.md", "docs/templates.md"])
def test_a_page_is_printed_as_markdown(tmp_path: Path, name: str) -> None:
    ended = command(tmp_path, "docs", name)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.decode() == (ROOT / "docs/templates.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["tmplates", "images/viewer-prompt.png", "../pyproject.toml"])
def test_an_unknown_page_is_an_error(tmp_path: Path, name: str) -> None:
    ended = command(tmp_path, "docs", name)
    assert (ended.returncode, ended.stdout) == (2, b"")
    way = ' (did you mean "templates"?)' if name == "tmplates" else ""
    assert ended.stderr.decode() == f'error: no page "{name}"{way}; gateway docs lists all pages\n'
