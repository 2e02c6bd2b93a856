"""Log lines that consist of named fields: ``req_1 attempt_failed model=m target=m/0 …``, or the same as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

MAX_VALUE = 240
"""The maximum number of characters of one value in a log line."""


def log_event(logger: logging.Logger, level: int, event: str, request_id: str, fields: Mapping[str, object]) -> None:
    """Log an event of one request. A ``JsonFormatter`` writes the fields as members of an object."""
    if logger.isEnabledFor(level):
        words = [request_id, event, *(f"{name}={shown(value)}" for name, value in fields.items())]
        logger.log(level, "%s", " ".join(words), extra={"fields": {"event": event, "request_id": request_id, **fields}})


def shown(value: object) -> str:
    """Return a value as one word. Spaces, quotes and control characters are quoted; an empty value becomes ``-``."""
    text = "" if value is None else str(value)[:MAX_VALUE]
    if text.isprintable() and not any(mark in text for mark in ' "\\'):
        return text or "-"
    return json.dumps(text, ensure_ascii=not text.isprintable())
