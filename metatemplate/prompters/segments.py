"""Text operations on segments. Every piece of a result has the label of its source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from metatemplate.values.prompt import Segment, Segments

TOOLS = ("system", "tools", False)
"""The label of a text that is made from the tools of the request."""


def template_text(text: str) -> Segment:
    """Return a segment for a text of the template."""
    return Segment(text, "", "template", True)


def text_of(segments: Iterable[Segment]) -> str:
    """Return the joined text of the segments."""
    return "".join([segment.text for segment in segments])


def strip_leading(segments: Segments, character: str) -> Segments:
    """Remove a leading character from the joined text, like ``str.lstrip``."""
    for place, segment in enumerate(segments):
        if text := segment.text.lstrip(character):
            return (replace(segment, text=text), *segments[place + 1 :])
    return ()
