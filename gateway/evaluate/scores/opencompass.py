"""Results of OpenCompass and AISBench with details (``--dump-eval-details``), below ``results/``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.core.errors import InvalidValue
from gateway.evaluate.analysis.client_text import client_text
from gateway.evaluate.scores.row import ScoredRow, requests_of

CORRECT = ("correct", "is_correct", "cascade_correct")
"""The names under which evaluators write whether a prediction is right."""


def rows_of(path: Path, value: Mapping[str, Any]) -> Iterator[ScoredRow]:
    """Yield the rows of results, with the requests in the predictions beside them."""
    found, place = value["details"], path.parents[2] / "predictions" / path.parent.name / path.stem
    details = [one for name, one in found.items() if name != "type"] if isinstance(found, dict) else found
    groups = [list[Mapping[str, Any]]() for _ in details]  # of repeats
    for number, one in enumerate(_predictions(place)):
        groups[one.get("id", number) % len(groups)].append(one)
    harness = "ais-bench" if place.with_suffix(".jsonl").exists() else "opencompass"
    for number, (right, group) in enumerate(zip(_rights(path, value, details), groups, strict=True)):
        texts = [client_text({"prompt": one.get("origin_prompt") or one.get("input")}) for one in group]
        answers = [str(one.get("prediction", "")) for one in group]
        scores = {} if right is None else {"correct": right}
        yield ScoredRow(f"{harness}:{path.stem}/{number}", scores, requests_of(texts, answers))


def _predictions(place: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the predictions in their order: of OpenCompass from one object, of AISBench from the lines of two files."""
    one, *lines = [place.with_name(f"{place.name}{end}") for end in (".json", ".jsonl", "_failed.jsonl")]
    if one.exists():
        yield from [value for _, value in sorted(json.loads(one.read_bytes()).items(), key=lambda item: int(item[0]))]
    for file in lines:
        if file.exists():
            yield from [json.loads(line) for line in file.read_bytes().splitlines()]


def _rights(path: Path, value: Mapping[str, Any], details: Sequence[Mapping[str, Any]]) -> Sequence[float | None]:
    """Return the share of right predictions of each row; None: not scored. Raises ``InvalidValue``.

    Evaluators without details of their own, such as ``AccEvaluator``, compare texts. Their comparison is repeated, and
    refused if it does not give the accuracy that they have written.
    """
    found = [next((one[name] for name in CORRECT if one.get(name) is not None), None) for one in details]
    if any(one is not None for one in found):
        return [sum(one) / len(one) if isinstance(one, list) else one for one in found]
    equal = [float(one["predictions"] == one["references"]) for one in details]
    if equal and math.isclose(100 * sum(equal) / len(equal), value["accuracy"], abs_tol=1e-6):
        return equal
    raise InvalidValue(
        f"{path}: the details do not say which rows are right; choose an evaluator that writes `correct`"
    )
