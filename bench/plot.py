"""How does it look? One SVG: a panel a scenario group, a bar a subject, a whisker from the least to the most round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bench.results import REFERENCE, Results
from bench.spread import Spread

WIDTH, ROW, LABEL, PAD = 760, 20, 150, 14
OURS, OTHERS, INK, FAINT = "#2563eb", "#9ca3af", "#111827", "#e5e7eb"
PANELS = (
    # scenario, number, title
    ("nonstream@1", "requests_per_second", "Requests/s, 1 connection"),
    ("nonstream@32", "requests_per_second", "Requests/s, 32 connections"),
    ("nonstream@256", "requests_per_second", "Requests/s, 256 connections"),
    ("nonstream@32", "p99_ms", "p99 in ms, 32 connections"),
    ("nonstream@32", "cpu_us", "CPU µs per request, 32 connections"),
    ("stream@128", "cpu_us", "CPU µs per streamed event, 128 streams"),
    ("stream@128", "delay_p99_ms", "Delay of an event in ms, p99, 128 streams"),
    ("stream@128", "added_first_p50_ms", "Added to the first token in ms, p50, 128 streams"),
    ("idle@5000", "kb_per_stream", "KB per idle stream, 5000 streams"),
    ("startup", "ready_seconds", "Seconds until ready"),
    ("startup", "rss_mb", "RSS in MB, idle"),
)
CURVES = (
    # title, number, [(x, scenario, subject)]
    ("CPU µs by turns", "cpu_us", [(n, f"turns@{n}", "gateway") for n in (1, 10, 50, 200)]),
    (
        "CPU µs by prompt, KB",
        "cpu_us",
        [(n, f"prompt@{name}", "gateway") for n, name in ((1, "1KB"), (32, "32KB"), (256, "256KB"), (1024, "1MB"))],
    ),
    *(
        (f"CPU µs by number of {kind}", "cpu_us", [(n, "growth@32", f"gateway+{kind}={n}") for n in (1, 100, 1000)])
        for kind in ("models", "keys")
    ),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """A name and its rounds."""

    name: str
    value: Spread


def svg(results: Results) -> str:
    """Every panel that has something to show, one below the other."""
    parts: list[str] = []
    y = PAD
    for title, bars in _panels(results):
        parts += [_text(PAD, y + 14, title, weight="bold")]
        y += 24
        top = max((bar.value.high for bar in bars), default=0) or 1.0
        for bar in bars:
            parts += _bar(bar, y, top)
            y += ROW
        y += PAD
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{y}" fill="white"/>', *parts, "</svg>"]) + "\n"


def _panels(results: Results) -> list[tuple[str, list[Bar]]]:
    panels = [(title, _bars(results, scenario, key)) for scenario, key, title in PANELS]
    panels += [(title, _curve(results, key, points)) for title, key, points in CURVES]
    return [(title, bars) for title, bars in panels if bars]


def _bars(results: Results, scenario: str, key: str) -> list[Bar]:
    subjects = results.rounds.get(scenario, {})
    return [Bar(name, numbers[key]) for name in subjects if key in (numbers := results.spreads(scenario, name))]


def _curve(results: Results, key: str, points: Sequence[tuple[int, str, str]]) -> list[Bar]:
    found = [
        Bar(f"{x}", numbers[key])
        for x, scenario, subject in points
        if scenario in results.rounds and key in (numbers := results.spreads(scenario, subject))
    ]
    return found if len(found) > 1 else []


def _bar(bar: Bar, y: int, top: float) -> list[str]:
    span = WIDTH - LABEL - 90 - PAD
    x, width = LABEL, max(1.0, bar.value.median / top * span)
    low, high = (LABEL + max(0.0, value) / top * span for value in (bar.value.low, bar.value.high))
    middle = y + ROW / 2 - 2
    colour = OURS if bar.name.startswith(REFERENCE) or bar.name.isdigit() else OTHERS
    return [
        _text(LABEL - 6, y + 12, bar.name, anchor="end"),
        f'<rect x="{x}" y="{y + 2}" width="{span}" height="{ROW - 7}" fill="{FAINT}" fill-opacity="0.5"/>',
        f'<rect x="{x}" y="{y + 2}" width="{width:.1f}" height="{ROW - 7}" fill="{colour}"/>',
        f'<path d="M{low:.1f} {middle:.1f}H{high:.1f}" stroke="{INK}"/>',
        _text(LABEL + span + 6, y + 12, _number(bar.value.median)),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 100 else f"{value:.3g}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" fill="{INK}">{escape(text)}</text>'
