"""The user part of a filled instruction: what LazyLLM's regular expressions find, in linear time."""

from __future__ import annotations

import re
import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metatemplate.prompters.instruction import USER_BEGINS, USER_ENDS
from tests.support.reference.lazyllm.exact_fill import user_part

REFERENCE = {
    "all": re.compile(f"{USER_BEGINS}(.*){USER_ENDS}", re.DOTALL),
    "line": re.compile(f".*{USER_BEGINS}(.*){USER_ENDS}"),
}
PIECES = st.lists(st.sampled_from([USER_BEGINS, USER_ENDS, "a", "\n", "\r", "<", "!>", "/"]), max_size=10).map("".join)


@pytest.mark.parametrize("parts", REFERENCE)
@given(text=PIECES)
@example(text=USER_ENDS + USER_BEGINS)
@example(text=USER_BEGINS + "\n" + USER_ENDS)
@example(text=f"a\nb{USER_BEGINS}c{USER_BEGINS}d{USER_ENDS}e{USER_ENDS}{USER_BEGINS}")
def test_the_part_is_the_one_that_the_expression_finds(parts: str, text: str) -> None:
    found = REFERENCE[parts].search(text)
    assert user_part(text, parts) == (None if found is None else found.span(1))


@pytest.mark.parametrize("parts", REFERENCE)
def test_a_text_of_nothing_but_tags_costs_no_time(parts: str) -> None:
    # The expressions take minutes for it.
    asking = threading.Thread(target=user_part, args=(USER_ENDS + USER_BEGINS * 20_000, parts), daemon=True)
    asking.start()
    asking.join(30)
    assert not asking.is_alive()
