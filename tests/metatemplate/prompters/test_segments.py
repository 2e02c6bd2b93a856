"""Text operations on labelled segments."""

from __future__ import annotations

from metatemplate.prompters.segments import replace_all, template_text, text_of
from metatemplate.values.prompt import Segment
from tests.support.growth import assert_linear


def test_replacing_keeps_the_labels_of_both_sides() -> None:
    value = Segment("}b{x}", "user", "messages[0]", False)
    segments = replace_all((template_text("a{x"), value), "{x}", Segment("N", "system", "variables.x", False))
    assert text_of(segments) == "aNbN"
    assert [(segment.text, segment.origin) for segment in segments] == [
        ("a", "template"), ("N", "variables.x"), ("b", "messages[0]"), ("N", "variables.x"),
    ]  # fmt: skip


def test_replacing_in_a_client_text_takes_linear_time() -> None:
    def replace_both(size: int) -> None:
        segments: tuple[Segment, ...] = (Segment("{a}{b}" * size, "user", "messages[0]", False),)
        for name in "ab":
            segments = replace_all(segments, f"{{{name}}}", template_text("x"))
        assert text_of(segments) == "xx" * size

    assert_linear(replace_both, 2_000)
