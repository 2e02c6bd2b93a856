"""Logs of inspect-ai as JSON (``--log-format json``, or ``inspect log dump``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gateway.evaluate.scores.row import ScoredRow, dialogue_requests

LETTERS = {"C": 1, "P": 0.5, "I": 0, "N": 0, "yes": 1, "true": 1, "no": 0, "false": 0}
"""The values of scores that are texts: correct, partly correct, incorrect, no answer."""


def rows_of(path: Path, value: Mapping[str, Any]) -> Iterator[ScoredRow]:
    """Yield the samples of a log. A scorer with several values has a score for each, such as ``grader.tone``."""
    for sample in value["samples"]:
        number = str(sample["id"]).replace("/", "_") + (f"#{epoch}" if (epoch := sample["epoch"]) > 1 else "")
        scores = dict(_scores(sample.get("scores") or {}))
        ids = [one for one in _response_ids(sample) if one]
        yield ScoredRow(
            f"inspect-ai:{value['eval']['task']}/{number}", scores, dialogue_requests(sample["messages"], ids)
        )


def _scores(scores: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for scorer, score in scores.items():
        value = score["value"]
        for name, one in value.items() if isinstance(value, dict) else [("", value)]:
            yield f"{scorer}.{name}".rstrip("."), LETTERS.get(one, one) if isinstance(one, str) else one


def _response_ids(sample: Mapping[str, Any]) -> Iterator[str | None]:
    """Yield the ids of the responses that the solvers received, without those that the scorers received."""
    scoring = set()
    for event in sample.get("events") or ():
        if event["event"] == "span_begin" and (event.get("type") == "scorers" or event.get("parent_id") in scoring):
            scoring.add(event["id"])
        elif event["event"] == "model" and event.get("span_id") not in scoring:
            yield (event.get("output") or {}).get("response_id")
