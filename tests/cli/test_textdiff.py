"""Does a person see where two texts differ?"""

from __future__ import annotations

import pytest

from gateway.cli.textdiff import Paint, differing, near, printable

PLAIN = Paint(False)

SHOWN = {  # a text, and how it is shown
    "plain": ("a b", "a b"),
    "ends": ("a\nb\r\tc", "a\\nb\\r\\tc"),
    "blanks at the end": ("a  ", "a··"),
    "a backslash": ("\\n", "\\\\n"),
    "an escape of a terminal": ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
    "odd blanks": ("a\u00a0b\u200b\u2028", "a\\xa0b\\u200b\\u2028"),
    "letters": ("é 你 \U0001f600", "é 你 \U0001f600"),
    "half a character": ("\ud800", "\\ud800"),
}


@pytest.mark.parametrize(("text", "shown"), SHOWN.values(), ids=SHOWN)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


NEAR = {  # text, place, shown
    "in the middle": ("ab", 1, '"a⟨here⟩b"'),
    "at the beginning": ("ab", 0, '"⟨here⟩ab"'),
    "at the end": ("ab ", 3, '"ab ", and ends'),
    "of nothing": ("", 0, '"", and ends'),
    "of a long one": ("x" * 30 + "y" * 30, 30, f'…"{"x" * 24}⟨here⟩{"y" * 24}"…'),
}


@pytest.mark.parametrize(("text", "at", "shown"), NEAR.values(), ids=NEAR)
def test_the_neighbourhood_of_a_place(text: str, at: int, shown: str) -> None:
    assert near(text, at) == shown


DIFFERING: dict[str, tuple[str, str, list[str]]] = {
    # ours, reference, lines
    "a character": (
        "one\ntwo\nthree", "one\ntwx\nthree",
        ["@@ line 1 of ours, 1 of the reference @@", "  one\\n", "- two\\n", "    ^", "+ twx\\n", "    ^", "  three"],
    ),
    "a line break at the end": (
        "<end>\n", "<end>",
        ["@@ line 1 of ours, 1 of the reference @@", "- <end>\\n", "       ^^", "+ <end>"],
    ),
    "a line more": (
        "a\nc\n", "a\nb\nc\n",
        ["@@ line 1 of ours, 1 of the reference @@", "  a\\n", "+ b\\n", "  c\\n"],
    ),
    "a line less": (
        "a\nb\nc\n", "a\nc\n",
        ["@@ line 1 of ours, 1 of the reference @@", "  a\\n", "- b\\n", "  c\\n"],
    ),
    "wide letters push the mark": (
        "你好a", "你好b", ["@@ line 1 of ours, 1 of the reference @@", "- 你好a", "      ^", "+ 你好b", "      ^"],
    ),
    "nothing in common is not marked": (
        "abc", "xyz", ["@@ line 1 of ours, 1 of the reference @@", "- abc", "+ xyz"],
    ),
    "nothing at all": ("", "a", ["@@ line 1 of ours, 1 of the reference @@", "+ a"]),
}  # fmt: skip


@pytest.mark.parametrize(("ours", "reference", "lines"), DIFFERING.values(), ids=DIFFERING)
def test_the_lines_that_differ(ours: str, reference: str, lines: list[str]) -> None:
    assert list(differing(ours, reference, PLAIN)) == lines


def test_far_lines_are_left_out() -> None:
    same = "".join([f"{n}\n" for n in range(20)])
    assert list(differing(f"{same}a", f"{same}b", PLAIN)) == [
        "@@ line 19 of ours, 19 of the reference @@", "  18\\n", "  19\\n", "- a", "+ b",
    ]  # fmt: skip


def test_of_a_long_line_the_place_is_shown() -> None:
    ours, reference = "x" * 5000 + "a" + "y" * 5000, "x" * 5000 + "b" + "y" * 5000
    _, one, mark, other, _ = differing(ours, reference, PLAIN)
    assert len(one) < 170
    assert one[mark.index("^")] == "a"
    assert other[mark.index("^")] == "b"


def test_colours_are_for_those_who_want_them() -> None:
    assert list(differing("abc", "xyz", Paint(True)))[1:] == ["\x1b[31m- abc\x1b[0m", "\x1b[32m+ xyz\x1b[0m"]
