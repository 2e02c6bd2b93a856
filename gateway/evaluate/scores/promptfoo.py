"""Output of promptfoo as JSON (``--output FILE.json``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gateway.evaluate.scores.row import ScoredRow, contents, requests_of


def rows_of(path: Path, value: Mapping[str, Any]) -> Iterator[ScoredRow]:
    """Yield the results. ``success`` is what promptfoo counts; ``score`` is the weighted score of the assertions."""
    for one in value["results"]["results"]:
        response, raw = one.get("response") or {}, one["prompt"]["raw"]
        output = response.get("output")
        headers = ((response.get("metadata") or {}).get("http") or {}).get("headers") or {}
        text = contents(json.loads(raw)) if raw.startswith("[{") else raw  # messages as JSON
        scores = {"success": one["success"], "score": one["score"], **(one.get("namedScores") or {})}
        answers, ids = ([output] if isinstance(output, str) else []), filter(None, [headers.get("x-request-id")])
        yield ScoredRow(f"promptfoo:{one['promptIdx']}/{one['testIdx']}", scores, requests_of([text], answers, [*ids]))
