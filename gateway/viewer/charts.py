"""Pictures as SVG, with presentation attributes only: the content security policy forbids inline styles.

Every picture has a title for screen readers, and the table beside it has the same numbers. A picture with links is a
group, because screen readers do not see the links in an image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from markupsafe import Markup

WIDTH = 100
"""The width of a picture in percent of its place. Heights are pixels, so texts keep their size."""
LINE = 34
"""The height of a bar with its label above it."""
LONGEST_LABEL = 44
TOP, HEIGHT = 18, 140
"""The height above the bars of a histogram, and that of the highest bar."""
MOST_LABELS = 6
"""The maximum number of labels below a histogram."""

ChartPart = Mapping[str, Any]
"""A part of a picture: ``name``, ``value``, ``color`` (the number of a colour of ``style.css``), and an optional
``link``."""


def bars(title: str, rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Return horizontal bars, each with its ``label`` above it and its ``parts`` beside each other."""
    longest = max([sum([part["value"] for part in row["parts"]]) for row in rows], default=0) or 1
    lines = []
    for at, row in enumerate(rows):
        ends = list(accumulate([part["value"] for part in row["parts"]], initial=0))
        pieces = [_bar(at, part, ends[n] / longest, ends[n + 1] / longest) for n, part in enumerate(row["parts"])]
        lines.append(_label(at, f"{row['label']}: {_shown(ends[-1])}") + Markup().join(pieces))
    return _svg(title, len(rows) * LINE, lines)


def waterfall(title: str, steps: Sequence[ChartPart]) -> Markup:
    """Return a bar for each step, which begins where the step before it ends. A step with ``total`` begins at 0."""
    places, at = [], 0.0
    for step in steps:
        start = 0.0 if step.get("total") else at
        at = start + step["value"]
        places.append((min(start, at), max(start, at)))
    low = min([start for start, _ in places], default=0.0)
    span = max([end for _, end in places], default=0.0) - low or 1
    lines = [
        _label(n, f"{step['name']}: {_shown(step['value'], step.get('total'))}")
        + _bar(n, step, (start - low) / span, (end - low) / span)
        for n, (step, (start, end)) in enumerate(zip(steps, places, strict=True))
    ]
    return _svg(title, len(steps) * LINE, lines)


def histogram(title: str, buckets: Sequence[ChartPart]) -> Markup:
    """Return vertical bars beside each other, each below its number, with the ``label`` of some of them below."""
    highest = max([bucket["value"] for bucket in buckets], default=0) or 1
    width, every, bottom = WIDTH / max(len(buckets), 1), -(-len(buckets) // MOST_LABELS), TOP + HEIGHT
    lines = []
    for at, bucket in enumerate(buckets):
        height = HEIGHT * bucket["value"] / highest
        lines.append(_linked(bucket, at * width, bottom - height, width, height, 12))
        lines.append(_text(at * width, bottom - height - 3, bucket["value"] or ""))
        if at % every == 0:
            lines.append(_text(at * width, bottom + 15, bucket["label"]))
    return _svg(title, bottom + 20, lines)


def swatch(color: int) -> Markup:
    """Return a small square in a colour, for the name of a part in a table."""
    return Markup(
        '<svg width="12" height="12" aria-hidden="true"><rect width="12" height="12" fill="var(--color-{})"/></svg>'
    ).format(int(color))


def _svg(title: str, height: int, lines: Iterable[Markup]) -> Markup:
    content = Markup().join(lines)
    role = "group" if "<a " in content else "img"
    return Markup('<svg class="chart" role="{}" aria-label="{}" height="{}"><title>{}</title>{}</svg>').format(
        role, title, height, title, content
    )


def _label(at: int, text: str) -> Markup:
    return _text(0, at * LINE + 12, _short(text))


def _text(x: float, y: float, text: object) -> Markup:
    return Markup('<text x="{:.1f}%" y="{:.0f}">{}</text>').format(x, y, text)


def _bar(at: int, part: ChartPart, start: float, end: float) -> Markup:
    """Return a part of the bar number ``at``. ``start``, ``end``: shares of the width."""
    return _linked(part, start * WIDTH, at * LINE + 16, max((end - start) * WIDTH, 0.1), LINE - 20, at * LINE + 12)


def _linked(part: ChartPart, x: float, y: float, width: float, height: float, hint: float) -> Markup:
    """Return a rectangle, with its link. ``hint``: the height of the text that is shown while the link has the focus.

    The mouse shows the title of the rectangle.
    """
    text = _short(f"{part['name']}: {_shown(part['value'], part.get('total'))}")
    rect = Markup(
        '<rect x="{:.2f}%" y="{:.1f}" width="{:.2f}%" height="{:.1f}" fill="var(--color-{})"><title>{}</title></rect>'
    ).format(x, y, width, height, int(part.get("color", 0)), text)
    if not part.get("link") or not part["value"]:
        return rect
    shown = Markup('<text x="{}%" y="{:.1f}" text-anchor="end">{}</text>').format(WIDTH, hint, text)
    return Markup('<a href="{}" aria-label="{}">{}{}</a>').format(part["link"], text, rect, shown)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL // 2]}…{text[-LONGEST_LABEL // 2 :]}"


def _shown(value: float, is_total: bool | None = False) -> str:
    """Return a number. A change has a sign."""
    return f"{value:{'' if is_total else '+'}.3f}" if isinstance(value, float) else str(value)
