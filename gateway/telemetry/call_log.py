"""The log line of a finished call, without content, headers or keys."""

from __future__ import annotations

import logging
from typing import Any

from gateway.telemetry.log_event import shown
from gateway.telemetry.log_writer import LogWriter
from gateway.telemetry.record import Record

CALLS = logging.getLogger("gateway.calls")
LINE = "%s %s model=%s status=%d outcome=%s target=%s attempts=%d seconds=%.4f tokens=%s+%s"

OPTIONAL = {
    "key": "key",
    "cache": "cache",
    "failed": "failed_attempts",
    "notices": "misspelled",
    "path": "path",
    "error": "refusal",
}
"""Name in the log line → field of ``Record``, for fields that are left out if empty. See ``docs/operations.md``."""
SEPARATORS = {"failed": ",", "notices": "; "}
"""Field whose value is a list → the separator of its items in the log line. Notices contain commas."""


def log_call(record: Record) -> None:
    """Log a call: at ``WARNING`` if the gateway or the model's server failed, else at ``INFO``."""
    status, outcome = record.status, record.outcome
    level = logging.WARNING if status >= 500 or (status == 200 and outcome != "ok") else logging.INFO
    if not CALLS.isEnabledFor(level):
        return
    prompt, completion = record.prompt_tokens, record.completion_tokens
    values = (
        record.request_id,
        record.endpoint,
        record.model,
        status,
        outcome,
        record.target or "-",
        record.attempts,
        record.duration,
        "?" if prompt is None else prompt,
        "?" if completion is None else completion,
    )
    line = LINE
    # The condition repeats ``OPTIONAL``: most lines have none of the fields, and the loop costs 2 % of a plain call.
    if record.key or record.cache or record.failed_attempts or record.misspelled or record.path or record.refusal:
        for name, value in _optional(record).items():
            text = SEPARATORS[name].join(value) if name in SEPARATORS else value
            line += f" {name}={shown(text)}".replace("%", "%%")
    # Making a ``LogRecord`` takes most of the time of a log call, so one is made only if there are other handlers.
    handlers = CALLS.root.handlers
    if handlers and type(handlers[0]) is LogWriter and handlers[0].is_only_handler_of(CALLS):
        handlers[0].write_line(level, line % values)
    else:
        CALLS.log(level, line, *values, extra={"fields": _fields(record)})


def _optional(record: Record) -> dict[str, Any]:
    """Return the optional fields that are not empty."""
    return {name: value for name, field in OPTIONAL.items() if (value := getattr(record, field))}


def _fields(record: Record) -> dict[str, object]:
    """Return the fields of the log line in JSON. Lists stay lists."""
    optional = _optional(record)
    optional.pop("failed", None)  # see ``failed_attempts``
    return {
        "event": "call",
        "request_id": record.request_id,
        "endpoint": record.endpoint,
        "model": record.model,
        "status": record.status,
        "outcome": record.outcome,
        "target": record.target,
        "attempts": record.attempts,
        "failed_attempts": record.failed_attempts,
        "stream": record.stream,
        "seconds": round(record.duration, 4),
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        **optional,
    }
