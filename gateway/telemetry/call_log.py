"""What does the log say of a call? One line, without content, headers or keys."""

from __future__ import annotations

import logging

from gateway.core.record import Record
from gateway.telemetry.log_writer import Lines

CALLS = logging.getLogger("gateway.calls")
LINE = "%s %s model=%s status=%d outcome=%s target=%s attempts=%d seconds=%.4f tokens=%s+%s"


def log_call(record: Record) -> None:
    """``INFO`` for what went well or was the client's doing, ``WARNING`` for what was not."""
    status, outcome = record.status, record.outcome
    level = logging.WARNING if status >= 500 or (status == 200 and outcome != "ok") else logging.INFO
    if not CALLS.isEnabledFor(level):
        return
    prompt, completion = record.prompt_tokens, record.completion_tokens
    words = (
        record.request_id, record.endpoint, record.model, status, outcome, record.target or "-", record.attempts,
        record.duration, "?" if prompt is None else prompt, "?" if completion is None else completion,
    )  # fmt: skip
    # A log record costs more than all else that a call leaves; it is made for those who have set up their own handlers.
    handlers = CALLS.root.handlers
    if handlers and type(handlers[0]) is Lines and handlers[0].takes_all_of(CALLS):
        handlers[0].say(level, LINE % words)
    else:
        CALLS.log(level, LINE, *words)
