"""Tables, escaped text and differences."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from gateway.cli.terminal import color_difference, diff_lines, escape_line, format_table, progress
from tests.cli.command import command
from tests.support.serving import ROOT


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ESCAPED = {  # text, escaped
    "plain": ("a b", "a b"),
    "line breaks and tabs": ("a\nb\r\tc", "a\\nb\\r\\tc"),
    "blanks at the end": ("a  ", "a··"),
    "a backslash": ("\\n", "\\\\n"),
    "an ANSI code": ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
    "unusual blanks": ("a\u00a0b\u200b\u2028", "a\\xa0b\\u200b\\u2028"),
    "letters": ("é 你 \U0001f600", "é 你 \U0001f600"),
    "a lone surrogate": ("\ud800", "\\ud800"),
}


@pytest.mark.parametrize(("text", "escaped"), ESCAPED.values(), ids=ESCAPED)
def test_what_is_not_printable_is_escaped(text: str, escaped: str) -> None:
    assert escape_line(text) == escaped


def test_columns_of_a_table_are_aligned() -> None:
    assert format_table([["a", "b", "c"], ["long", "", "x"]]) == ["a     b  c", "long     x"]


DIFFERENCES: dict[str, tuple[str, str, list[str]]] = {
    # a, b, lines below the names
    "a character": (
        "one\ntwo\nthree", "one\ntwx\nthree",
        ["first difference: byte 6 (line 2, column 3)",
         '  - "one\\ntw⟨here⟩o\\nthree"', '  + "one\\ntw⟨here⟩x\\nthree"',
         "@@ -1,3 +1,3 @@", " one\\n", "-two\\n", "+twx\\n", " three"],
    ),
    "a line break at the end": (
        "<end>\n", "<end>",
        ["first difference: byte 5 (line 1, column 6)", '  - "<end>⟨here⟩\\n"', '  + "<end>⟨here⟩"',
         "@@ -1 +1 @@", "-<end>\\n", "+<end>"],
    ),
    "a dot and a blank": (
        "é ", "é·",
        ["first difference: byte 2 (line 1, column 2)", '  - "é⟨here⟩ "', '  + "é⟨here⟩·"',
         "@@ -1 +1 @@", "-é·", "+é·"],
    ),
    "another line separator": (
        "\u2028", "",
        ["first difference: byte 0 (line 1, column 1)", '  - "⟨here⟩\\u2028"', '  + "⟨here⟩"',
         "@@ -1 +0,0 @@", "-\\u2028"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("a", "b", "lines"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_difference_is_located_and_shown(a: str, b: str, lines: list[str]) -> None:
    assert "\n".join(diff_lines(a, b, "A", "B")).split("\n") == ["--- A", "+++ B", *lines]


def test_long_texts_are_shortened_around_the_first_difference() -> None:
    same = "".join([f"{n}\n" for n in range(20)])
    lines = list(diff_lines(f"{same}{'x' * 30}a", f"{same}{'x' * 30}b", "A", "B"))
    assert lines[2:5] == [
        "first difference: byte 80 (line 21, column 31)",
        f'  - …"{"x" * 24}⟨here⟩a"',
        f'  + …"{"x" * 24}⟨here⟩b"',
    ]
    assert lines[5:] == ["@@ -19,3 +19,3 @@", " 18\\n", " 19\\n", f"-{'x' * 30}a", f"+{'x' * 30}b"]


def test_the_lines_of_both_texts_have_their_colors() -> None:
    lines = [color_difference(line) for line in diff_lines("abc", "xyz", "A", "B")]
    assert lines[-2:] == [
        "\x1b[31m-abc\x1b[0m",
        "\x1b[32m+xyz\x1b[0m",
    ]


def test_a_terminal_shows_the_progress() -> None:
    with redirect_stderr(Terminal()) as terminal, progress("rows", range(60), lambda failed: f"{failed} failed") as bar:
        bar.update(20, 3)
    assert "rows  [############------------------------]  20/60  3 failed" in terminal.getvalue()


def test_a_file_gets_no_progress() -> None:
    with redirect_stderr(io.StringIO()) as file, progress("comparing", ["a", "b"]) as bar:
        assert list(bar) == ["a", "b"]
    assert file.getvalue() == ""


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["check", "--config", str(ROOT / "deploy/gateway.yaml")], "checking  ["),
        (["parity", "--template", "alpaca", "--reference", "sft-demo"], "comparing  ["),
        (["import", str(ROOT / "demo/model"), "--name", "mine", "--as", "meta", "--out", "-"], "comparing mine  ["),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_a_verb_that_takes_a_while_shows_its_progress(words: list[str], shown: str, tmp_path: Path) -> None:
    done = command(tmp_path, *words, terminal=True)
    assert shown in done.stderr.decode(), done.stderr.decode()
    assert shown not in command(tmp_path, *words).stderr.decode()
