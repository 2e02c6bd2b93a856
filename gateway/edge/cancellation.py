"""Who ended the work? The client that left, the process that leaves, or somebody else.

A request's work is one task. Whoever has to end it says why and cancels the task; where the cancellation
comes out of the work, it becomes that reason again. A cancellation without a reason is not ours and goes on its way.
"""

from __future__ import annotations

import asyncio


class ClientGone(Exception):
    """The client closed its connection; nobody is left to be told."""

    outcome = "client_gone"
    phase = ""
    """Set where it does not follow from how far the call was."""


class ClientStalled(ClientGone):
    """The client has read nothing of its stream for as long as the policy allows; its connection is closed."""

    outcome = "client_stalled"
    phase = "stalled"


class Cancellation:
    """The task that answers a request, and the reason why it has to stop."""

    __slots__ = ("_settled", "_why", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        """Who does the work; None: nobody yet."""
        self._why: Exception | None = None
        self._settled = False

    def leave(self, why: Exception) -> None:
        """End the work because of ``why``; the first reason counts, and none after ``settle``."""
        if self._settled or self._why is not None or self.task is None:
            return
        self._why = why
        self.task.cancel()

    def settle(self) -> None:
        """The work is done and its last byte about to go: from now on a disconnect is the ordinary end.

        Raises the reason of a ``leave`` that came before, even if its cancellation has been lost or is yet to come.
        """
        self._settled = True
        if self._why is not None:
            self.resign()

    def conclude(self) -> None:
        """The work has failed, and the client is being told why: no reason to end it counts from now on."""
        self._settled = True

    def resign(self) -> None:
        """A cancellation came out of the work: raise its reason; return if it was not ours, or not ours alone."""
        if self._why is not None and self.task is not None and not self.task.uncancel():
            raise self._why from None
