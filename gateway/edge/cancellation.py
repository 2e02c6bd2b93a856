"""Ends the task that answers a request, and records why.

One task answers one request. ``cancel`` stores a reason and cancels the task; where the cancellation leaves the
handler, ``reraise`` raises that reason. A cancellation without a stored reason comes from elsewhere and passes on.
"""

from __future__ import annotations

import asyncio


class ClientGone(Exception):
    """The client closed its connection; no answer can reach it."""

    outcome = "client_gone"
    phase = ""
    """The label ``phase`` of the metric; empty where it follows from how far the call was."""


class ClientStalled(ClientGone):
    """The client read nothing of its stream for the time the policy allows; its connection is closed."""

    outcome = "client_stalled"
    phase = "stalled"


class Cancellation:
    """The task that answers a request, and the reason for which it has to end."""

    __slots__ = ("_committed", "_reason", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        """The task that answers; None before it is started."""
        self._reason: Exception | None = None
        self._committed = False

    def cancel(self, reason: Exception) -> None:
        """Cancel the task because of ``reason``; only the first reason counts, and none after ``commit``."""
        if self._committed or self._reason is not None or self.task is None:
            return
        self._reason = reason
        self.task.cancel()

    def commit(self) -> None:
        """The answer is complete and its last byte is about to be sent: a disconnect is its normal end from now on.

        Raises the reason of an earlier ``cancel``, also where its cancellation was lost or has not arrived yet.
        """
        self._committed = True
        if self._reason is not None:
            self.reraise()

    def shield(self) -> None:
        """The call has failed and its error is being sent: ignore every later ``cancel``."""
        self._committed = True

    def reraise(self) -> None:
        """Call where a cancellation was caught. Raises its reason; returns if others cancelled the task as well."""
        if self._reason is not None and self.task is not None and not self.task.uncancel():
            raise self._reason from None
