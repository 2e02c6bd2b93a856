"""The figures of docs/maintenance.md are those of the gateway."""

from __future__ import annotations

import re

import pytest

from tests.docs.recording_sizes import MODES, PAGE, TABLE, sizes
from tests.support.serving import ROOT

MAX_DIFFERENCE = 0.1
"""The share by which a figure may differ: the digits of times vary."""
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_bytes_of_a_recorded_call_are_those_of_the_page() -> None:
    table = TABLE.search(TEXT)
    assert table is not None
    shown = [line.strip("| \n").split(" | ") for line in table[0].splitlines()]
    found = sizes()
    assert [name for name, *_ in shown] == [str(shape) for shape in found]
    for (_, *cells), measured in zip(shown, found.values(), strict=True):
        numbers = [int(cell.replace(",", "")) for cell in cells]
        assert numbers == [pytest.approx(measured[mode], rel=MAX_DIFFERENCE) for mode in MODES]


FIGURES = {
    "1 000 streams of 50 tokens a second": r"A core carries about 1 000 such streams, 50 000 tokens a second",
    "10 000 short calls a second": r"\| `gateway` \| 10 024 ",
    "58 MB": r"\| memory at rest \| 58 MB",
    "21 KB": r"\| KB for a stream that waits, 2 000 / 5 000 streams \| 20 / 21 ",
    "12 KB": r"A further model with the same template costs .*, and 12 KB\.",
    "5 300": r"\| `gateway run` with the gateway inside, which records \| 5 300 ",
    "1.8 times": r"\| Two workers on two cores \| 1\.83 times",
}
"""A figure of the page → where docs/performance.md has it."""


@pytest.mark.parametrize("figure", FIGURES)
def test_a_size_is_that_of_the_page_about_performance(figure: str) -> None:
    assert figure in TEXT.partition("## Sizes")[2]
    assert re.search(FIGURES[figure], (ROOT / "docs/performance.md").read_text(encoding="utf-8"))
