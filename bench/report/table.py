"""Results as Markdown tables; each cell is the median and (minimum–maximum) of the rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.report.results import REFERENCE, Results
from bench.report.stats import Stats
from bench.scenarios import SCENARIOS

COLUMNS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    # metric → (column heading, number format)
    "requests_per_second": ("requests/s", lambda v: f"{v:,.0f}".replace(",", " ")),
    "events_per_second": ("events/s", lambda v: f"{v:,.0f}".replace(",", " ")),
    "share_of_due": ("of those due", lambda v: f"{v:.0%}"),
    "p50_ms": ("p50 ms", lambda v: f"{v:.2f}"),
    "p99_ms": ("p99 ms", lambda v: f"{v:.2f}"),
    "cpu_us": ("CPU µs each", lambda v: f"{v:.1f}"),
    "core_busy": ("core busy", lambda v: f"{v:.0%}"),
    "added_first_p50_ms": ("added to first token ms p50", lambda v: f"{v:.2f}"),
    "first_p99_ms": ("first token ms p99", lambda v: f"{v:.2f}"),
    "delay_p50_ms": ("event delay ms p50", lambda v: f"{v:.2f}"),
    "delay_p99_ms": ("event delay ms p99", lambda v: f"{v:.2f}"),
    "added_delay_p99_ms": ("added to event delay ms p99", lambda v: f"{v:.2f}"),
    "kb_per_stream": ("KB per stream", lambda v: f"{v:.1f}"),
    "added_mb": ("added MB", lambda v: f"{v:.0f}"),
    "rss_mb": ("RSS MB", lambda v: f"{v:.0f}"),
    "freed_ms": ("upstream freed ms", lambda v: f"{v:.0f}"),
    "left_running": ("upstream streams never freed", lambda v: f"{v:.0f}"),
    "ready_seconds": ("ready s", lambda v: f"{v:.2f}"),
    "upstream_per_request": ("upstream requests each", lambda v: f"{v:.1f}"),
    "errors": ("errors", lambda v: f"{v:.0f}"),
}
RATIO_HEADINGS = {
    "requests_per_second": "requests/s",
    "cpu_us": "CPU",
    "p99_ms": "p99",
    "delay_p99_ms": "delay p99",
    "kb_per_stream": "KB per stream",
    "ready_seconds": "ready",
    "rss_mb": "RSS",
}


def markdown(results: Results) -> str:
    """The whole report."""
    facts = {**results.machine, **results.options}
    parts = [
        "# Results",
        "",
        ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()) + ".",
        "",
        "Each cell: median (minimum–maximum) of the rounds.",
        "Ratios are the gateway divided by the system of the row, round by round: "
        "higher is better for requests/s, lower for all others.",
    ]
    for scenario, systems in results.rounds.items():
        description = SCENARIOS[scenario].description if scenario in SCENARIOS else ""
        parts += ["", f"## {scenario}", "", f"{description[:1].upper()}{description[1:]}.", ""]
        parts += _renders(results, scenario) if scenario == "renders" else _rows(results, scenario, list(systems))
        failures = results.failures.get(scenario, {})
        reasons = [f"- `{name}` could not be measured: {_one_line(reason)}" for name, reason in failures.items()]
        parts += ["", *reasons] if reasons else []
    return "\n".join(parts) + "\n"


def _rows(results: Results, scenario: str, systems: list[str]) -> list[str]:
    stats = {name: found for name in systems if (found := results.stats(scenario, name))}
    columns = [key for key in COLUMNS if any(key in metrics for metrics in stats.values())]
    ratios = {name: dict(results.ratios(scenario, name)) for name in stats}
    compared = [key for key in RATIO_HEADINGS if any(key in row for row in ratios.values())] if len(stats) > 1 else []
    headings = ["system", *(COLUMNS[key][0] for key in columns), *(f"× {RATIO_HEADINGS[key]}" for key in compared)]
    lines = [_line(headings), _line(["---"] * len(headings))]
    for name, metrics in stats.items():
        cells = [_cell(metrics.get(key), COLUMNS[key][1]) for key in columns]
        cells += [_cell(ratios[name].get(key), lambda v: f"{v:.2f}") for key in compared]
        lines.append(_line([f"`{name}`", *cells]))
    return lines


def _renders(results: Results, scenario: str) -> list[str]:
    gateway = results.stats(scenario, REFERENCE)
    lines = [_line(["template, turns", "renders/s", "reference package's renders/s", "ratio"]), _line(["---"] * 4)]
    packages = {name: results.stats(scenario, name) for name in ("opencompass", "lazyllm")}
    others = {key: value for rates in packages.values() for key, value in rates.items()}  # their keys are disjoint
    for key, value in gateway.items():
        other = others.get(key)
        ratio = f"{value.median / other.median:.1f}" if other else ""
        lines.append(_line([key, *(_cell(stats, lambda v: f"{v:.0f}") for stats in (value, other)), ratio]))
    for name, rates in packages.items():
        both = [key for key in gateway if key in rates]
        if both:
            ours, theirs = (_harmonic_mean([stats[key].median for key in both]) for stats in (gateway, rates))
            cells = [f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.1f}"]
            lines.append(_line([f"all {len(both)} of {name}, each once", *cells]))
    return [*lines, *_python_builds(results)]


def _python_builds(results: Results) -> list[str]:
    """The Python builds of the renderers, if several renderers were compared."""
    builds = {name: _one_line(build) for name, build in results.python_builds.items()}
    ours = builds.pop(REFERENCE, "")
    different = [f"- `{name}` ran on {build}: **another build**" for name, build in builds.items() if build != ours]
    if different:
        return ["", f"The gateway ran on {ours}; the ratios include the difference between the builds:", "", *different]
    return ["", f"All on {ours}."] if builds else []


def _harmonic_mean(rates: list[float]) -> float:
    """Renders per second of a workload in which every cell occurs equally often."""
    return len(rates) / sum(1 / rate for rate in rates)


def _cell(stats: Stats | None, write: Callable[[float], str]) -> str:
    if stats is None:
        return ""
    low, high = write(stats.minimum), write(stats.maximum)
    return write(stats.median) if low == high else f"{write(stats.median)} ({low}–{high})"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _one_line(text: str) -> str:
    """Text without characters that have a meaning in a Markdown table."""
    return " ".join(text.replace("|", "/").replace("`", "'").split())


def summary(metrics: Mapping[str, float]) -> str:
    """The first four metrics in one line, for the progress output."""
    keys = [key for key in COLUMNS if key in metrics][:4]
    return ", ".join(f"{COLUMNS[key][1](metrics[key])} {COLUMNS[key][0]}" for key in keys) or f"{len(metrics)} metrics"
