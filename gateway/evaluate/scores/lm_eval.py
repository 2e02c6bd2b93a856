"""Samples of lm-eval: a line for each document and filter, written with ``--log_samples``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gateway.evaluate.scores.row import ScoredRow, contents, requests_of

NAME = re.compile(r"samples_(.+)_\d{4}-\d\d-\d\dT[\d.:-]+")
"""The name of a file: its lines do not have the name of the task."""
NO_SCORE = "bypass"
"""The metric of ``--predict_only``."""


def rows_of(path: Path, value: Mapping[str, Any]) -> Iterator[ScoredRow]:
    """Yield the row of a line. A score of another filter than ``none`` is named ``METRIC,FILTER``."""
    named = NAME.fullmatch(path.stem)
    suffix = "" if value["filter"] == "none" else f",{value['filter']}"
    sent = [_text(*one.values()) for one in value["arguments"].values()]
    texts = [text for text, responses in zip(sent, value["resps"], strict=True) for _ in responses]  # repeats
    responses = [one for responses in value["resps"] for one in responses if isinstance(one, str)]
    scores = {f"{metric}{suffix}": value[metric] for metric in value["metrics"] if metric != NO_SCORE}
    yield ScoredRow(
        f"lm-eval:{named[1] if named else path.stem}/{value['doc_id']}", scores, requests_of(texts, responses)
    )


def _text(context: str | list[str], continuation: Any = "", *_: Any) -> str:
    """Return the text of a request. With a chat template, the context is a list with the messages as JSON."""
    if isinstance(context, list):
        return contents([one for messages in context for one in json.loads(messages)])
    return context + continuation if isinstance(continuation, str) else context
