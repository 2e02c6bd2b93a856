"""``scripts/check-site`` finds broken links and what is loaded from elsewhere, and the site has every page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.docs.console import examples_of
from tests.support.serving import ROOT

HEAD = '<link rel="stylesheet" href="a.css"><link rel="canonical" href="https://example.com/">'
BODY = '<h2 id="here">Here</h2><a href="sub/">sub</a><a href="https://example.com/">other</a><img src="data:,">'


def check(site: Path, added: str = "", style: str = "") -> tuple[int, list[str]]:
    """The exit code and the printed lines for a site whose first page has something added."""
    (site / "sub").mkdir()
    (site / "index.html").write_text(f"{HEAD}{BODY}{added}", encoding="utf-8")
    (site / "sub/index.html").write_text('<a href="../index.html#here">up</a><a href="/">first</a>', encoding="utf-8")
    (site / "a.css").write_text(f"p {{ background: url(data:image/png,) }} {style}", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "scripts/check-site", str(site)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stdout.splitlines()


def test_a_site_without_problems_passes(tmp_path: Path) -> None:
    assert check(tmp_path) == (0, ["pages: 2, problems: 0"])


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ('<a href="gone.html">', "gone.html has no target"),
        ('<a href="../outside.md">', "../outside.md has no target"),
        ('<a href="/gone/">', "/gone/ has no target"),
        ('<a href="#gone">', "#gone has no such anchor"),
        ('<a href="sub/index.html#gone">', "sub/index.html#gone has no such anchor"),
        ('<img src="gone.svg">', "gone.svg has no target"),
        ('<img srcset="gone.png 2x">', "gone.png has no target"),
        ('<script src="https://example.com/a.js">', "loads https://example.com/a.js from elsewhere"),
        ('<script src="//example.com/a.js">', "loads //example.com/a.js from elsewhere"),
        ('<link rel="preconnect" href="https://example.com">', "loads https://example.com from elsewhere"),
        ("<style>@import 'https://example.com/a.css'</style>", "loads https://example.com/a.css from elsewhere"),
        ('<p style="background: url(http://example.com/a)">', "loads http://example.com/a from elsewhere"),
    ],
)
def test_a_problem_of_a_page_is_found(added: str, problem: str, tmp_path: Path) -> None:
    assert check(tmp_path, added) == (1, [f"index.html: {problem}", "pages: 2, problems: 1"])


def test_a_font_from_elsewhere_and_a_missing_file_are_found_in_a_stylesheet(tmp_path: Path) -> None:
    code, lines = check(tmp_path, style='@font-face { src: url("https://example.com/f.woff2"), url(gone.woff2) }')
    assert code == 1
    assert lines[:2] == ["a.css: loads https://example.com/f.woff2 from elsewhere", "a.css: gone.woff2 has no target"]


def test_a_folder_without_pages_is_a_problem(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "scripts/check-site", str(tmp_path)], cwd=ROOT, check=False)
    assert ended.returncode == 1


NAVIGATION = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]


def test_the_navigation_has_every_page_once() -> None:
    named = re.findall(r"[\w/-]+\.md", str(NAVIGATION))
    assert sorted(named) == sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))


def test_the_first_page_has_the_groups_and_pages_of_the_navigation() -> None:
    """In the same order. Of a group inside a group, the first page has the first page."""
    first, *groups = [next(iter(group.items())) for group in NAVIGATION]
    assert first[1] == "README.md"
    sections = (ROOT / "docs/README.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert [(one.partition("\n")[0], re.findall(r"^- \[.*?\]\((\S+)\)", one, re.MULTILINE)) for one in sections] == [
        (name, [page if isinstance(page, str) else next(iter(page.values()))[0] for page in pages])
        for name, pages in groups
    ]


def test_no_link_leaves_the_documentation() -> None:
    """A file elsewhere is named by its path in code font: the site and ``gateway docs`` have the pages alone."""
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)\s#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).resolve().is_relative_to(ROOT / "docs"), f"{page.name}: {target}"


CHROMIUM = shutil.which("chromium")
MISSING = [name for name in (".venv-docs/.ready", ".venv-browser/.ready") if not (ROOT / name).exists()]


@pytest.fixture(scope="module")
def browsed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Page → what ``browse_site.py`` has found on it."""
    if CHROMIUM is None or MISSING:
        pytest.skip(f"make docs and tests/viewer/browser/install make what is missing: {MISSING or 'chromium'}")
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "zensical.toml", folder)
    subprocess.run([ROOT / ".venv-docs/bin/zensical", "build"], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    browse = [str(ROOT / ".venv-browser/bin/python"), "tests/docs/browse_site.py", str(folder / "site"), CHROMIUM]
    return json.loads(subprocess.run(browse, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)


def test_the_copy_buttons_copy_the_commands_alone(browsed: Any) -> None:
    copied = {page: "\n".join(one["copied"]) for page, one in browsed.items() if one["copied"]}
    shown = {path.relative_to(ROOT / "docs"): examples_of(path) for path in (ROOT / "docs").rglob("*.md")}
    assert copied == {
        page.with_suffix(".html").as_posix().replace("README", "index"): "\n".join(one.command for one in examples)
        for page, examples in shown.items()
        if examples
    }


def test_no_line_of_code_is_cut_at_1280_pixels(browsed: Any) -> None:
    assert [page for page, one in browsed.items() if one["cut"]] == []


def test_every_page_has_a_link_to_the_next_or_the_previous_page(browsed: Any) -> None:
    assert [page for page, one in browsed.items() if not one["links"]] == ["404.html"]
