"""The ids of a prompt are those of its whole text, except where a client's text contains a control token.

``python -m tests.exact_ids`` makes the same comparisons with 1 000 conversations and 25 000 hostile texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from metatemplate.values.prompt import Segment
from tests.exact_ids.compare import Subject, Tally, compare_hostile, compare_plain
from tests.exact_ids.conftest import subject_of

SEED = 7


def test_a_plain_conversation_has_the_ids_of_the_whole_text(subject: Subject) -> None:
    tally = compare_plain(subject, 20, SEED)
    assert tally.faults == []
    assert tally.counts["conversations"] == 20


def test_a_control_token_comes_from_text_of_the_template_only(subject: Subject) -> None:
    tally = compare_hostile(subject, 200, SEED)
    assert tally.faults == []
    assert tally.counts["stretches with a marker"] > 20
    assert tally.counts["stretches without a marker"] > 20


def whole_text(subject: Subject) -> Callable[[Sequence[Segment]], tuple[int, ...]]:
    return lambda segments: subject.whole("".join(one.text for one in segments))


def segment_by_segment(subject: Subject) -> Callable[[Sequence[Segment]], tuple[int, ...]]:
    return lambda segments: sum([subject.ours.encode([one], special=False) for one in segments], ())


@pytest.mark.parametrize(
    ("encode", "compare", "fault"),
    [
        (whole_text, compare_hostile, "control tokens that the template does not write"),
        (segment_by_segment, compare_plain, "other ids than the whole text"),
        (segment_by_segment, compare_hostile, "other ids without a marker"),
    ],
)
def test_another_way_to_encode_is_found_to_be_wrong(
    encode: Callable[[Subject], Callable[[Sequence[Segment]], tuple[int, ...]]],
    compare: Callable[[Subject, int, int], Tally],
    fault: str,
) -> None:
    subject = subject_of("demo")
    subject.encode = encode(subject)
    tally = compare(subject, 200, SEED)
    assert tally.counts[f"FAULT {fault}"] > 0, tally
