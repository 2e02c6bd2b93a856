"""The log line of a finished call, without content, headers or keys."""

from __future__ import annotations

import logging
from typing import Any

from gateway.telemetry.log_event import shown
from gateway.telemetry.log_writer import LogWriter
from gateway.telemetry.record import Record

CALLS = logging.getLogger("gateway.calls")
TIMES = "seconds=%.4f upstream=%.4f overhead=%.4f"
MIN_CLIENT_WAIT = 0.001
"""The seconds from which on a wait for the client is logged. A write that does not wait takes some microseconds."""

OPTIONAL = {
    "key": "key",
    "cache": "cache",
    "cut": "answers_cut",
    "failed": "failed_attempts",
    "notices": "misspelled",
    "path": "path",
    "trace_id": "trace_id",
    "error": "refusal",
}
"""Name in the log line → field of ``Record``, for fields that are left out if empty. See ``docs/operations.md``."""
SEPARATORS = {"cut": ",", "failed": ",", "notices": "; "}
"""Field whose value is a list → the separator of its items in the log line. Notices contain commas."""
FIELDS = (
    *("request_id", "endpoint", "model", "status", "outcome", "target", "attempts", "failed_attempts", "stream"),
    *("duration", "queue_wait", "upstream_first", "upstream", "client_wait", "overhead"),
    *("prompt_tokens", "completion_tokens"),
)
"""The fields of ``Record`` in a log line in JSON. ``duration`` is named ``seconds`` there."""


def log_call(record: Record) -> None:
    """Log a call: at ``WARNING`` if the gateway or the model's server failed, else at ``INFO``."""
    status, outcome = record.status, record.outcome
    level = logging.WARNING if status >= 500 or (status == 200 and outcome != "ok") else logging.INFO
    if not CALLS.isEnabledFor(level):
        return
    prompt, completion, times = record.prompt_tokens, record.completion_tokens, ""
    seconds = record.duration, record.upstream or 0.0, record.overhead
    if record.queue_wait is not None:
        times = f" queue_wait={record.queue_wait:.4f}"
    if record.upstream_stream and record.upstream_first is not None:  # that of a whole answer is ``upstream``
        times += f" upstream_first={record.upstream_first:.4f}"
    if record.client_wait >= MIN_CLIENT_WAIT:
        times += f" client_wait={record.client_wait:.4f}"
    line = (
        f"{record.request_id} {record.endpoint} model={record.model} status={status} outcome={outcome} "
        f"target={record.target or '-'} attempts={record.attempts} {TIMES % seconds}{times} "
        f"tokens={'?' if prompt is None else prompt}+{'?' if completion is None else completion}"
    )
    # The conditions repeat ``OPTIONAL``: most lines have at most ``cut``, and the loop costs 2 % of a plain call.
    rare = record.failed_attempts or record.misspelled or record.path or record.refusal
    if record.key or record.cache or record.trace or rare:
        for name, value in _optional(record).items():
            line += f" {name}={shown(SEPARATORS[name].join(value) if name in SEPARATORS else value)}"
    elif record.answers_cut:
        line += f" cut={','.join(record.answers_cut)}"
    # Making a ``LogRecord`` takes most of the time of a log call, so one is made only if there are other handlers.
    handlers = CALLS.root.handlers
    if handlers and type(handlers[0]) is LogWriter and handlers[0].is_only_handler_of(CALLS):
        handlers[0].write_line(level, line)
    else:
        CALLS.log(level, "%s", line, extra={"fields": _fields(record)})


def _optional(record: Record) -> dict[str, Any]:
    """Return the optional fields that are not empty."""
    return {name: value for name, field in OPTIONAL.items() if (value := getattr(record, field))}


def _fields(record: Record) -> dict[str, object]:
    """Return the fields of the log line in JSON. Lists stay lists."""
    found: dict[str, object] = {"event": "call"}
    for name in FIELDS:
        value = getattr(record, name)
        found["seconds" if name == "duration" else name] = round(value, 4) if isinstance(value, float) else value
    optional = _optional(record)
    optional.pop("failed", None)  # see ``failed_attempts``
    return found | optional
