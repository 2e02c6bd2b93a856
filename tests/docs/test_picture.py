"""The picture of a render is what the script draws."""

from __future__ import annotations

from tests.docs.picture import MESSAGES, PICTURE, draw


def test_the_picture_is_that_of_a_real_render() -> None:
    drawn = draw()
    assert all(message["content"] in drawn for message in MESSAGES)
    assert PICTURE.read_text(encoding="utf-8") == drawn, "python -m tests.docs.picture"
