"""JSON5: the round trip, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatemplate.prompters.json5 import write_json5
from tests.support.growth import assert_linear
from tests.support.reference.lazyllm.json5 import NotJson5, read_json5

# LazyLLM's library writes a NUL as \0 even before a digit, which then reads as an octal escape, and it reads no bare
# line separator inside a string.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\u2028\u2029"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_what_is_written_as_json5_is_read_back(value: Any) -> None:
    assert read_json5(write_json5(value)) == value


@given(VALUES)
def test_json_is_json5(value: Any) -> None:
    assert read_json5(json.dumps(value)) == value
    assert read_json5(json.dumps(value, ensure_ascii=False, indent=2)) == value


BROKEN = [
    "",
    "[1 2]",
    "{a}",
    "{,}",
    "01",
    "--1",
    "-0x10",
    "'open",
    "nullx",
    "1 2",
    "/* open",
    "[" * 500,
    ".",
    ".e5",
    "'\\ud83d'",
]


@pytest.mark.parametrize("text", BROKEN)
def test_text_that_is_not_json5_is_refused(text: str) -> None:
    with pytest.raises(NotJson5):
        read_json5(text)


@pytest.mark.parametrize("text", ["[0,", "'", "// x\n", "{a:", "[", "\\u0061", " ", "/*", "'\\x41"])
def test_reading_takes_linear_time(text: str) -> None:
    def read(size: int) -> None:
        with pytest.raises(NotJson5):
            read_json5(text * (size // len(text)) + "!")

    assert_linear(read, 20_000)
