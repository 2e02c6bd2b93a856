"""Ends the task that answers a request, and records why.

One task answers one request. ``cancel`` stores a reason and cancels the task. The handler then calls ``reraise``, which
raises the stored reason. Without a stored reason the cancellation came from elsewhere, and the handler raises it again.
"""

from __future__ import annotations

import asyncio


class ClientGone(Exception):
    """The client closed its connection; no answer can reach it."""

    outcome = "client_gone"
    phase = ""
    """The label ``phase`` of the metric. Empty: the label depends on whether the answer had begun."""


class ClientStalled(ClientGone):
    """The client read nothing of the stream for longer than the policy allows, so the connection is closed."""

    outcome = "client_stalled"
    phase = "stalled"


class Cancellation:
    """The task that answers a request, and the reason why it must end."""

    task: asyncio.Task[None] | None = None
    """The task that answers the request; None before the task is started."""
    _reason: Exception | None = None
    _committed = False

    def cancel(self, reason: Exception) -> None:
        """Cancel the task because of ``reason``. Does nothing after an earlier ``cancel``, ``commit`` or ``shield``."""
        if self._committed or self._reason is not None or self.task is None:
            return
        self._reason = reason
        self.task.cancel()

    def commit(self) -> None:
        """Mark the answer as complete, before its last bytes are sent. A later disconnect then counts as a normal end.

        Raises the reason of an earlier ``cancel``, even if the task has not received the cancellation.
        """
        self._committed = True
        if self._reason is not None:
            self.reraise()

    def shield(self) -> None:
        """Ignore every later ``cancel``. Called when a call has failed and the error is about to be sent."""
        self._committed = True

    def reraise(self) -> None:
        """Raise the stored reason, after a cancellation was caught. Do nothing if others also cancelled the task."""
        if self._reason is not None and self.task is not None and not self.task.uncancel():
            raise self._reason from None
