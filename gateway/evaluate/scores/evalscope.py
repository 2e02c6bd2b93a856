"""Reviews of EvalScope: a line for each sample, below ``reviews/``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gateway.evaluate.scores.row import ScoredRow, dialogue_requests


def rows_of(path: Path, value: Mapping[str, Any]) -> Iterator[ScoredRow]:
    """Yield the row of a line. The main score is the first one."""
    score = value["sample_score"]["score"]
    main, scores = score.get("main_score_name"), score["value"] if score["status"] == "success" else {}
    scores = {**({main: scores[main]} if main in scores else {}), **scores}
    yield ScoredRow(f"evalscope:{path.stem}/{value['index']}", scores, dialogue_requests(value["messages"]))
