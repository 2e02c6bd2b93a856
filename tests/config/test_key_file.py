"""Entries are added to a key file and removed from it; every other byte stays, or nothing is written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.config.files.key_file import CannotEdit, edit, with_entry, without_entry

ENTRY = 'new:\n  sha256: "00"\n'
FILE = """\
# keys of the team

# CI, owner: infra
ci:   # rotated in May
  sha256: "11"
  models: ["a-*",
    "b"]   # a list over two lines
  # limits: {concurrency: 4}

# people
ann: {sha256: "22"}   # laptop
"b.ob@x": {sha256: "33"}
"""
WITHOUT = {  # name: the removed text
    "ci": FILE[FILE.index("ci:") : FILE.index("\n# people")],
    "ann": 'ann: {sha256: "22"}   # laptop\n',
    "b.ob@x": '"b.ob@x": {sha256: "33"}\n',
}


@pytest.mark.parametrize("name", WITHOUT)
def test_only_the_lines_of_an_entry_are_removed(name: str) -> None:
    assert without_entry(FILE, name) == FILE.replace(WITHOUT[name], "")


@pytest.mark.parametrize(
    "text", ["", "# no key yet\n", FILE, FILE.rstrip("\n"), FILE.replace("\n", "\r\n"), "---\na: 1\n"]
)
def test_an_entry_is_added_at_the_end(text: str) -> None:
    changed = with_entry(text, "new", ENTRY)
    assert changed in (text + ENTRY, f"{text}\n{ENTRY}")
    if text and text != "# no key yet\n":
        assert without_entry(changed, "new") in (text, text + "\n")


REFUSED = {
    "a taken name": ("new: {sha256: a}\n", "has an entry new already"),
    "one mapping in braces": ("{a: {sha256: b}}\n", "cannot edit"),
    "the end of the document": ("a: {sha256: b}\n...\n", "cannot edit"),
    "an indented mapping": ("  a: {sha256: b}\n", "cannot edit"),
    "no mapping": ("- a\n", "cannot edit"),
    "a syntax error": ("a: [\n", "cannot edit"),
}


@pytest.mark.parametrize(("text", "told"), REFUSED.values(), ids=REFUSED)
def test_a_file_in_which_nothing_can_be_added_is_refused(text: str, told: str) -> None:
    with pytest.raises(CannotEdit, match=told):
        with_entry(text, "new", ENTRY)


@pytest.mark.parametrize("text", ["{a: {sha256: b}, c: {sha256: d}}\n", "a: &a {sha256: b}\nc: *a\n"])
def test_an_entry_that_others_need_is_not_removed(text: str) -> None:
    with pytest.raises(CannotEdit, match="cannot edit"):
        without_entry(text, "a")


def test_an_edited_file_is_replaced_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path, link = tmp_path / "keys.yaml", tmp_path / "link.yaml"
    assert edit(path, lambda text: f"{text}a\r\n") is None
    path.chmod(0o644)
    link.symlink_to(path)
    with path.open("rb") as before:
        assert edit(link, lambda text: f"{text}b\n") == 0o644
        assert before.read() == b"a\r\n", "a reader has the whole old file"
    assert path.read_bytes() == b"a\r\nb\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["keys.yaml", "link.yaml"]


def test_a_failed_edit_leaves_the_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(FILE)
    with pytest.raises(UnicodeEncodeError):
        edit(path, lambda text: f"{text}\ud800")
    assert path.read_text() == FILE
    assert os.listdir(tmp_path) == ["keys.yaml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_edited_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("")
    os.chown(path, 12345, 23456)
    edit(path, lambda _: "a\n")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)
