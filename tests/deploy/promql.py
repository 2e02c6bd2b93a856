"""Names, selectors and groupings of a PromQL expression, to be compared with ``names.py``."""

from __future__ import annotations

import re

from gateway.telemetry.metric_definitions import METRICS

TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
NAME = re.compile(r"\b(?:gateway|process|python)_\w+|\bup\b")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
SELECTOR = re.compile(r"([a-z_]\w*)\s*\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)\s*(=~|!~|!=|=)")
PAIRS = {")": "(", "]": "[", "}": "{"}

EVERYWHERE = {"instance", "job"}
"""Labels that Prometheus itself puts on every series."""

SERIES: dict[str, set[str]] = {"up": set()}
"""Series name → labels, as `/metrics` of one gateway gives them."""
for row in METRICS:
    suffixes = {"_bucket": {"le"}, "_sum": set(), "_count": set()} if row.kind == "histogram" else {"": set()}
    SERIES |= {row.name + suffix: {*row.labels, *extra} for suffix, extra in suffixes.items()}
SERIES |= {name: set() for name in ("process_resident_memory_bytes", "process_cpu_seconds_total")}


def names(expression: str) -> set[str]:
    """Every series an expression reads."""
    bare = GROUPING.sub(" ", SELECTOR.sub(r"\1 ", TEXT.sub('""', expression)))
    return set(NAME.findall(bare))


def grouping(expression: str) -> set[str]:
    """Every label that an aggregation or a match names."""
    return {label.strip() for found in GROUPING.findall(expression) for label in found.split(",") if label.strip()}


def selected(expression: str) -> set[tuple[str, str]]:
    """Every (series, label) of a selector."""
    return {
        (series, label)
        for series, inside in SELECTOR.findall(TEXT.sub('""', expression))
        for label, _ in MATCHER.findall(inside)
    }


def problems(expression: str) -> list[str]:
    """What would make an expression return nothing, for ever."""
    found = [] if balanced(expression) else ["brackets do not match"]
    read = names(expression)
    found += ["reads no series"] * (not read)
    found += [f"no series {name}" for name in read - SERIES.keys()]
    for name in read & SERIES.keys():
        found += [f"{name} has no label {label}" for label in grouping(expression) - SERIES[name] - EVERYWHERE]
    for name, label in selected(expression):
        if name in SERIES and label not in SERIES[name] | EVERYWHERE:
            found.append(f"{name} has no label {label}")
    if "histogram_quantile" in expression and "le" not in grouping(expression):
        found.append("a quantile needs the label le")
    return found


def balanced(expression: str) -> bool:
    """Does each bracket have its partner?"""
    open_: list[str] = []
    for char in TEXT.sub("", expression):
        if char in PAIRS.values():
            open_.append(char)
        elif char in PAIRS and (not open_ or open_.pop() != PAIRS[char]):
            return False
    return not open_
