"""Replaces, cuts and strips text that is stored as segments. Every piece of the result has the label of its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


def cut(segments: Segments, start: int, end: int) -> Segments:
    """Return the segments between two offsets of the joined text."""
    return tuple(next(_parts(segments, [(start, end)])))


def replace_all(segments: Segments, old: str, new: Segment) -> Segments:
    """Replace ``old`` with ``new`` in the joined text, like ``str.replace``, in linear time."""
    pieces = text_of(segments).split(old)
    if len(pieces) == 1:
        return segments
    spans, at = [], 0
    for piece in pieces:
        spans.append((at, at + len(piece)))
        at += len(piece) + len(old)
    first, *others = _parts(segments, spans)
    return (*first, *[segment for part in others for segment in (new, *part)])


def strip_leading(segments: Segments, character: str) -> Segments:
    """Remove a leading character from the joined text, like ``str.lstrip``."""
    text = text_of(segments)
    return cut(segments, len(text) - len(text.lstrip(character)), len(text)) if text.startswith(character) else segments


def _parts(segments: Segments, spans: Iterable[tuple[int, int]]) -> Iterator[list[Segment]]:
    """Yield the segments in each span of the joined text. The spans are in ascending order."""
    index = begin = 0
    for start, end in spans:
        part: list[Segment] = []
        while index < len(segments):
            segment = segments[index]
            stop = begin + len(segment.text)
            low, high = max(start, begin), min(end, stop)
            if low < high:
                part.append(replace(segment, text=segment.text[low - begin : high - begin]))
            if stop > end:
                break
            index, begin = index + 1, stop
        yield part
