"""How are results read? As Markdown tables: the median, and (least–most) of all rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.results import REFERENCE, Results, known
from bench.spread import Spread

COLUMNS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    # number → (column's head, how it is written)
    "requests_per_second": ("requests/s", lambda v: f"{v:,.0f}".replace(",", " ")),
    "events_per_second": ("events/s", lambda v: f"{v:,.0f}".replace(",", " ")),
    "share_of_due": ("of those due", lambda v: f"{v:.0%}"),
    "p50_ms": ("p50 ms", lambda v: f"{v:.2f}"),
    "p99_ms": ("p99 ms", lambda v: f"{v:.2f}"),
    "cpu_us": ("CPU µs each", lambda v: f"{v:.1f}"),
    "load": ("core busy", lambda v: f"{v:.0%}"),
    "added_first_p50_ms": ("first token + ms p50", lambda v: f"{v:.2f}"),
    "first_p99_ms": ("first token ms p99", lambda v: f"{v:.2f}"),
    "delay_p50_ms": ("event delay ms p50", lambda v: f"{v:.2f}"),
    "delay_p99_ms": ("event delay ms p99", lambda v: f"{v:.2f}"),
    "added_delay_p99_ms": ("event delay + ms p99", lambda v: f"{v:.2f}"),
    "kb_per_stream": ("KB a stream", lambda v: f"{v:.1f}"),
    "added_mb": ("added MB", lambda v: f"{v:.0f}"),
    "rss_mb": ("RSS MB", lambda v: f"{v:.0f}"),
    "freed_ms": ("upstream freed ms", lambda v: f"{v:.0f}"),
    "left_running": ("upstream streams never freed", lambda v: f"{v:.0f}"),
    "ready_seconds": ("ready s", lambda v: f"{v:.2f}"),
    "upstream_per_request": ("upstream calls each", lambda v: f"{v:.1f}"),
    "errors": ("errors", lambda v: f"{v:.0f}"),
}
RATIO = {
    "requests_per_second": "requests/s",
    "cpu_us": "CPU",
    "p99_ms": "p99",
    "delay_p99_ms": "delay p99",
    "kb_per_stream": "KB a stream",
    "ready_seconds": "ready",
    "rss_mb": "RSS",
}


def markdown(results: Results) -> str:
    """The whole report."""
    facts = {**results.machine, **results.effort}
    said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
    parts = ["# Results", "", f"{said}.", "", "Each cell: median (least–most) of the rounds."]
    parts += [
        "Ratios are the gateway over the subject, round by round: more is better for requests/s, less for the rest."
    ]
    for scenario, subjects in results.rounds.items():
        says = known(scenario)
        parts += ["", f"## {scenario}", "", f"{says[:1].upper()}{says[1:]}.", ""]
        parts += _renders(results, scenario) if scenario == "renders" else _rows(results, scenario, list(subjects))
        reasons = results.unfit.get(scenario, {})
        said_why = [f"- `{name}` could not be measured: {_plain(why)}" for name, why in reasons.items()]
        parts += ["", *said_why] if reasons else []
    return "\n".join(parts) + "\n"


def _rows(results: Results, scenario: str, subjects: list[str]) -> list[str]:
    spreads = {name: results.spreads(scenario, name) for name in subjects}
    spreads = {name: numbers for name, numbers in spreads.items() if numbers}
    columns = [key for key in COLUMNS if any(key in numbers for numbers in spreads.values())]
    ratios = {name: dict(results.ratios(scenario, name)) for name in spreads}
    compared = [key for key in RATIO if any(key in row for row in ratios.values())] if len(spreads) > 1 else []
    heads = ["subject", *(COLUMNS[key][0] for key in columns), *(f"× {RATIO[key]}" for key in compared)]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for name, numbers in spreads.items():
        cells = [_cell(numbers.get(key), COLUMNS[key][1]) for key in columns]
        cells += [_cell(ratios[name].get(key), lambda v: f"{v:.2f}") for key in compared]
        lines.append(_line([f"`{name}`", *cells]))
    return lines


def _renders(results: Results, scenario: str) -> list[str]:
    numbers = results.spreads(scenario, REFERENCE)
    lines = [_line(["template, turns", "renders/s", "the original's renders/s", "ratio"]), _line(["---"] * 4)]
    originals = {name: results.spreads(scenario, name) for name in ("opencompass", "lazyllm")}
    theirs = {key: value for rates in originals.values() for key, value in rates.items()}  # none has two originals
    for key, value in numbers.items():
        other = theirs.get(key)
        ratio = f"{value.median / other.median:.1f}" if other else ""
        lines.append(_line([key, *(_cell(v, lambda x: f"{x:.0f}") for v in (value, other)), ratio]))
    for name, rates in originals.items():
        both = [key for key in numbers if key in rates]
        if both:
            mine, other_rate = (_each_once([spreads[key].median for key in both]) for spreads in (numbers, rates))
            cells = [f"{mine:.0f}", f"{other_rate:.0f}", f"{mine / other_rate:.1f}"]
            lines.append(_line([f"all {len(both)} of {name}, each once", *cells]))
    return [*lines, *_pythons(results)]


def _pythons(results: Results) -> list[str]:
    """On what was rendered, where that was compared."""
    builds = {name: _plain(build) for name, build in results.pythons.items()}
    ours = builds.pop(REFERENCE, "")
    odd = [f"- `{name}` ran on {build}: **another build**" for name, build in builds.items() if build != ours]
    if odd:
        return ["", f"The gateway ran on {ours}, and the ratios compare the Pythons, too:", "", *odd]
    return ["", f"All on {ours}."] if builds else []


def _each_once(rates: list[float]) -> float:
    """Renders a second of a work that holds each of them as often as the others."""
    return len(rates) / sum(1 / rate for rate in rates)


def _cell(numbers: Spread | None, write: Callable[[float], str]) -> str:
    if numbers is None:
        return ""
    low, high = write(numbers.low), write(numbers.high)
    return write(numbers.median) if low == high else f"{write(numbers.median)} ({low}–{high})"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    return " ".join(text.replace("|", "/").replace("`", "'").split())


def summary(numbers: Mapping[str, float]) -> str:
    """One measurement in a few words, for the progress lines."""
    keys = [key for key in COLUMNS if key in numbers][:4]
    said = ", ".join(f"{COLUMNS[key][1](numbers[key])} {COLUMNS[key][0]}" for key in keys)
    return said or f"{len(numbers)} numbers"
