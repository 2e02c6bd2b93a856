"""What came out? Rounds in, medians and ratios out; the JSON file holds every round, so nothing is lost by a table."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.calls import tool
from bench.processes import CORES, LOAD, PROXY
from bench.scenarios import SCENARIOS
from bench.spread import Spread, spread

REFERENCE = "gateway"
COMPARED = ("requests_per_second", "cpu_us", "p99_ms", "delay_p99_ms", "kb_per_stream", "ready_seconds", "rss_mb")
"""What ratios are made of, where it was measured."""


@dataclass(slots=True)
class Results:
    """One run of the suite."""

    machine: dict[str, object] = field(default_factory=dict)
    effort: dict[str, object] = field(default_factory=dict)
    rounds: dict[str, dict[str, list[dict[str, float] | None]]] = field(default_factory=dict)
    """scenario → subject → the numbers of each round; None where it could not be measured."""
    unfit: dict[str, dict[str, str]] = field(default_factory=dict)
    """scenario → subject → why it could not be measured."""
    pythons: dict[str, str] = field(default_factory=dict)
    """subject → the build of Python that it renders on, where some were compared."""

    def add(self, scenario: str, subject: str, numbers: dict[str, float] | None) -> None:
        """One subject's numbers of one round."""
        rounds = self.rounds.setdefault(scenario, {}).setdefault(subject, [])
        rounds.append(None if numbers is None else with_added(numbers, self._last(scenario, "direct")))

    def _last(self, scenario: str, subject: str) -> dict[str, float] | None:
        rounds = self.rounds.get(scenario, {}).get(subject, [])
        return rounds[-1] if rounds else None

    def spreads(self, scenario: str, subject: str) -> dict[str, Spread]:
        """Every number's median, least and most."""
        rounds = [numbers for numbers in self.rounds[scenario].get(subject, []) if numbers is not None]
        names = dict.fromkeys(name for numbers in rounds for name in numbers)
        return {name: spread([numbers[name] for numbers in rounds if name in numbers]) for name in names}

    def ratios(self, scenario: str, subject: str) -> Iterator[tuple[str, Spread]]:
        """The plain gateway's number over this subject's, round by round; without it the first subject's."""
        subjects = self.rounds[scenario]
        ours, theirs = subjects.get(REFERENCE) or next(iter(subjects.values())), subjects[subject]
        for name in COMPARED:
            pairs = [
                one[name] / other[name]
                for one, other in zip(ours, theirs, strict=False)
                if one and other and one.get(name) is not None and other.get(name)
            ]
            if pairs:
                yield name, spread(pairs)

    def save(self, path: Path) -> None:
        """Write the JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "machine": self.machine,
            "effort": self.effort,
            "rounds": self.rounds,
            "unfit": self.unfit,
            "pythons": self.pythons,
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Results:
    """Read what ``save`` wrote."""
    return Results(**json.loads(path.read_text(encoding="utf-8")))


def with_added(numbers: dict[str, float], direct: dict[str, float] | None) -> dict[str, float]:
    """With what the proxy adds to the first token and to the slowest events, against the same round without one."""
    if direct is None or "first_p50_ms" not in numbers:
        return numbers
    return numbers | {
        "added_first_p50_ms": numbers["first_p50_ms"] - direct["first_p50_ms"],
        "added_delay_p99_ms": numbers["delay_p99_ms"] - direct["delay_p99_ms"],
    }


def machine() -> dict[str, object]:
    """Where this was measured; no name of host or user."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": cpu,
        "cores": len(CORES),
        "proxy_core": PROXY,
        "load_core": LOAD,
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "load": tool(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def known(name: str) -> str:
    """What a scenario says of itself."""
    row = SCENARIOS.get(name)
    return row.says if row else ""
