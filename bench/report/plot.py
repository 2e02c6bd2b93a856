"""Results as one SVG: a bar chart per scenario; each bar is a median, its line runs from minimum to maximum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bench.report.results import REFERENCE, Results
from bench.report.stats import Stats

WIDTH, ROW_HEIGHT, LABEL_WIDTH, PADDING = 760, 20, 150, 14
GATEWAY_COLOUR, PEER_COLOUR, TEXT_COLOUR, BACKGROUND = "#2563eb", "#9ca3af", "#111827", "#e5e7eb"
PANELS = (
    # scenario, metric, title
    *(
        (f"stream@{streams}", metric, f"{title}, {streams} streams")
        for metric, title in (
            ("cpu_us", "CPU µs per streamed event"),
            ("added_first_p50_ms", "Added to the first token in ms, p50"),
            ("delay_p99_ms", "Delay of an event in ms, p99"),
        )
        for streams in (64, 256, 1000)
    ),
    ("idle@5000", "kb_per_stream", "KB per idle stream, 5000 streams"),
    ("nonstream@1", "requests_per_second", "Requests/s, 1 connection"),
    ("nonstream@32", "requests_per_second", "Requests/s, 32 connections"),
    ("nonstream@32", "p99_ms", "p99 in ms, 32 connections"),
    ("nonstream@32", "cpu_us", "CPU µs per request, 32 connections"),
    ("startup", "ready_seconds", "Seconds until ready"),
    ("startup", "rss_mb", "RSS in MB, idle"),
)
CURVES = (
    # title, metric, [(x, scenario, system)]
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
    """One bar: its label and value."""

    name: str
    value: Stats


def svg(results: Results) -> str:
    """All panels that have data, one below the other."""
    parts: list[str] = []
    y = PADDING
    for title, bars in _panels(results):
        parts += [_text(PADDING, y + 14, title, weight="bold")]
        y += 24
        scale = max((bar.value.maximum for bar in bars), default=0) or 1.0
        for bar in bars:
            parts += _bar(bar, y, scale)
            y += ROW_HEIGHT
        y += PADDING
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{y}" fill="white"/>', *parts, "</svg>"]) + "\n"


def _panels(results: Results) -> list[tuple[str, list[Bar]]]:
    panels = [(title, _bars(results, scenario, key)) for scenario, key, title in PANELS]
    panels += [(title, _curve(results, key, points)) for title, key, points in CURVES]
    return [(title, bars) for title, bars in panels if bars]


def _bars(results: Results, scenario: str, key: str) -> list[Bar]:
    systems = results.rounds.get(scenario, {})
    return [Bar(name, stats[key]) for name in systems if key in (stats := results.stats(scenario, name))]


def _curve(results: Results, key: str, points: Sequence[tuple[int, str, str]]) -> list[Bar]:
    bars = [
        Bar(f"{x}", stats[key])
        for x, scenario, system in points
        if scenario in results.rounds and key in (stats := results.stats(scenario, system))
    ]
    return bars if len(bars) > 1 else []


def _bar(bar: Bar, y: int, scale: float) -> list[str]:
    span = WIDTH - LABEL_WIDTH - 90 - PADDING
    x, width = LABEL_WIDTH, max(1.0, bar.value.median / scale * span)
    low, high = (LABEL_WIDTH + max(0.0, value) / scale * span for value in (bar.value.minimum, bar.value.maximum))
    middle = y + ROW_HEIGHT / 2 - 2
    colour = GATEWAY_COLOUR if bar.name.startswith(REFERENCE) or bar.name.isdigit() else PEER_COLOUR
    return [
        _text(LABEL_WIDTH - 6, y + 12, bar.name, anchor="end"),
        f'<rect x="{x}" y="{y + 2}" width="{span}" height="{ROW_HEIGHT - 7}" fill="{BACKGROUND}" fill-opacity="0.5"/>',
        f'<rect x="{x}" y="{y + 2}" width="{width:.1f}" height="{ROW_HEIGHT - 7}" fill="{colour}"/>',
        f'<path d="M{low:.1f} {middle:.1f}H{high:.1f}" stroke="{TEXT_COLOUR}"/>',
        _text(LABEL_WIDTH + span + 6, y + 12, _number(bar.value.median)),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 100 else f"{value:.3g}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" fill="{TEXT_COLOUR}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'
