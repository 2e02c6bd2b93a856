"""How far is a call? The notes its owner takes on the way, frozen into a ``Record`` at the end."""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.core.events import Begun, Delta, Document, Event, Finish, Usage
from gateway.core.record import Record
from gateway.policy.deliver.begin import is_content


class Progress:
    """One call's times and counts; written by the task that owns the call, and by no other."""

    def __init__(
        self, endpoint: str, request_id: str, received: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._now = now
        self._received = received
        self._asked: float | None = None
        self._upstream_first: float | None = None
        self._upstream_end: float | None = None
        self._first_written: float | None = None
        self._last_written: float | None = None
        self._gaps: list[float] = []
        self.endpoint = endpoint
        self.request_id = request_id
        self.model = "unknown"
        self.template = ""
        self.kind = ""
        self.stream = False
        self.target = ""
        self.attempts = 0
        self.admission: float | None = None
        self.render: float | None = None
        self.usage: Usage | None = None
        self.stop_cuts: list[str] = []
        self.cut_by_gateway = False
        self.delivery_notices: list[str] = []
        self.role_rewrites: tuple[str, ...] = ()
        self.bos_anomaly = False

    # ------------------------------------------------ moments

    def admitted(self) -> None:
        """The body is read, checked and turned into a call."""
        self.admission = self._now() - self._received

    def asked(self) -> None:
        """The backend is about to be asked."""
        self._asked = self._now()

    def upstream_ended(self) -> None:
        """The backend is closed."""
        self._upstream_end = self._now()

    def wrote(self, event: Event) -> None:
        """An event of a stream has been handed to the client's connection; only content counts, its end does not."""
        if not _is_text(event):
            return
        moment = self._now()
        if self._last_written is None:
            self._first_written = moment
        else:
            self._gaps.append(moment - self._last_written)
        self._last_written = moment

    def saw(self, event: Event) -> None:
        """An event on its way to the client."""
        if self._upstream_first is None and _is_text(event):
            self._upstream_first = self._now()
        if isinstance(event, Delta):
            return
        if isinstance(event, Usage):
            self.usage = event
        elif isinstance(event, Begun):
            self.target = event.target or self.target
            self.attempts = max(self.attempts, event.attempts)
            self.delivery_notices.extend(event.notices)
            self.bos_anomaly = self.bos_anomaly or any(notice.startswith("bos:") for notice in event.notices)
        elif isinstance(event, Finish) and event.reason == "stop":
            self.stop_cuts.append(event.source)
            self.cut_by_gateway = self.cut_by_gateway or event.source == "gateway"

    # ------------------------------------------------ sums

    @property
    def begun(self) -> bool:
        """Has content gone to the client?"""
        return self._first_written is not None

    def elapsed(self) -> float:
        """Seconds since the request's head."""
        return self._now() - self._received

    def overhead(self) -> float:
        """Seconds of ``elapsed`` that were not spent waiting for the upstream."""
        if self._asked is None:
            return self.elapsed()
        end = self._upstream_end or self._upstream_first or self._now()
        return max(self.elapsed() - (end - self._asked), 0.0)

    def freeze(self, outcome: str, status: int, gone_phase: str = "") -> Record:
        """The record of the finished call."""
        return Record(
            request_id=self.request_id,
            endpoint=self.endpoint,
            model=self.model,
            outcome=outcome,
            status=status,
            stream=self.stream,
            duration=self.elapsed(),
            template=self.template,
            kind=self.kind,
            target=self.target,
            attempts=self.attempts,
            admission=self.admission,
            render=self.render,
            upstream_first=_between(self._asked, self._upstream_first),
            upstream=_between(self._asked, self._upstream_end),
            first_token=_between(self._received, self._first_written),
            gaps=tuple(self._gaps),
            prompt_tokens=self.usage.prompt if self.usage else None,
            completion_tokens=self.usage.completion if self.usage else None,
            usage_source=self.usage.source if self.usage else "",
            stop_cuts=tuple(self.stop_cuts),
            role_rewrites=self.role_rewrites,
            bos_anomaly=self.bos_anomaly,
            gone_phase=gone_phase,
        )


def _is_text(event: Event) -> bool:
    return isinstance(event, Delta | Document) and is_content(event)


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start
