"""What does the log say of a call? One line, without content, headers or keys."""

from __future__ import annotations

import logging

from gateway.core.record import Record

CALLS = logging.getLogger("gateway.calls")


def log_call(record: Record) -> None:
    """``INFO`` for what went well or was the client's doing, ``WARNING`` for what was not."""
    level = (
        logging.WARNING if record.status >= 500 or (record.status == 200 and record.outcome != "ok") else logging.INFO
    )
    if not CALLS.isEnabledFor(level):
        return
    CALLS.log(
        level,
        "%s %s model=%s status=%d outcome=%s target=%s attempts=%d seconds=%.4f tokens=%s+%s",
        record.request_id, record.endpoint, record.model, record.status, record.outcome, record.target or "-",
        record.attempts, record.duration, _count(record.prompt_tokens), _count(record.completion_tokens),
    )  # fmt: skip


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)
