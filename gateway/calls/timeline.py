"""How far is a call? The notes its owner takes on the way, frozen into a ``Record`` at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import sub

from gateway.core.events import Begun, Delta, Document, Event, Finish, Usage, is_content
from gateway.core.exchange import AttemptLog
from gateway.core.record import Record


class CallTimeline:
    """One call's times and counts; written by the task that owns the call, and by no other."""

    __slots__ = (
        "_asked",
        "_now",
        "_received",
        "_upstream_end",
        "_upstream_first",
        "_written",
        "admission",
        "attempt_log",
        "bos_anomaly",
        "cut_by_gateway",
        "delivery_notices",
        "endpoint",
        "kind",
        "model",
        "render",
        "request_id",
        "role_rewrites",
        "stop_cuts",
        "stream",
        "template",
        "tool_parse_failures",
        "tool_parser",
        "usage",
    )

    def __init__(
        self, endpoint: str, request_id: str, received: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._now = now
        self._received = received
        self._asked: float | None = None
        self._upstream_first: float | None = None
        self._upstream_end: float | None = None
        self._written: list[float] = []
        """When each piece of content went to the client's connection."""
        self.endpoint = endpoint
        self.request_id = request_id
        self.model = "unknown"
        self.template = self.kind = self.tool_parser = ""
        self.tool_parse_failures = 0
        self.stream = self.cut_by_gateway = self.bos_anomaly = False
        self.attempt_log = AttemptLog()
        """The exchange's own once there is one."""
        self.admission: float | None = None
        self.render: float | None = None
        self.usage: Usage | None = None
        self.stop_cuts: list[str] = []
        self.delivery_notices: list[str] = []
        self.role_rewrites: tuple[str, ...] = ()

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

    def wrote(self, events: Sequence[Event]) -> None:
        """A batch of a stream has been handed to the client's connection; only content counts, its end does not.

        What left together has no gaps in between.
        """
        count = 0
        for event in events:
            if (type(event) is Delta and event.text) or _is_text(event):
                count += 1
        self._written += [self._now()] * count

    def passed(self, moments: Sequence[float]) -> None:
        """At these moments text has gone to the client's connection by itself."""
        self._written += moments

    def saw(self, events: Sequence[Event]) -> None:
        """A batch on its way to the client."""
        for event in events:
            if isinstance(event, Delta):
                if self._upstream_first is None and (event.text or is_content(event)):
                    self._upstream_first = self._now()
            elif isinstance(event, Finish):
                if event.reason == "stop":
                    self.stop_cuts.append(event.source)
                    self.cut_by_gateway = self.cut_by_gateway or event.source == "gateway"
            elif isinstance(event, Usage):
                self.usage = event
            elif isinstance(event, Begun):
                for notice in event.notices:
                    self.delivery_notices.append(notice)
                    self.bos_anomaly = self.bos_anomaly or notice.startswith("bos:")
            elif self._upstream_first is None:  # a document
                self._upstream_first = self._now()

    # ------------------------------------------------ sums

    @property
    def target(self) -> str:
        """Label of the target of the latest attempt; empty before the first."""
        return self.attempt_log.target

    @property
    def attempts(self) -> int:
        """Upstream attempts so far."""
        return self.attempt_log.count

    @property
    def begun(self) -> bool:
        """Has content gone to the client?"""
        return bool(self._written)

    def elapsed(self) -> float:
        """Seconds since the request's head."""
        return self._now() - self._received

    def overhead(self) -> float:
        """Seconds of ``elapsed`` that were not spent waiting for the upstream."""
        return self.spent()[1]

    def spent(self) -> tuple[float, float]:
        """``elapsed`` and ``overhead`` of the same moment."""
        now = self._now()
        elapsed, asked = now - self._received, self._asked
        if asked is None:
            return elapsed, elapsed
        overhead = elapsed - ((self._upstream_end or self._upstream_first or now) - asked)
        return elapsed, overhead if overhead > 0.0 else 0.0

    def freeze(self, outcome: str, status: int, gone_phase: str = "") -> Record:
        """The record of the finished call."""
        asked, usage = self._asked, self.usage
        first, ended, written = self._upstream_first, self._upstream_end, self._written
        return Record(  # by position: two dozen names would cost more than the rest
            self.request_id,
            self.endpoint,
            self.model,
            outcome,
            status,
            self.stream,
            self._now() - self._received,
            self.template,
            self.kind,
            self.attempt_log.target,
            self.attempt_log.count,
            self.admission,
            self.render,
            None if asked is None or first is None else first - asked,
            None if asked is None or ended is None else ended - asked,
            written[0] - self._received if written else None,
            tuple(map(sub, written[1:], written)),
            usage.prompt if usage is not None else None,
            usage.completion if usage is not None else None,
            usage.source if usage is not None else "",
            tuple(self.stop_cuts),
            self.role_rewrites,
            self.bos_anomaly,
            gone_phase,
            self.tool_parser,
            self.tool_parse_failures,
        )


def _is_text(event: Event) -> bool:
    return isinstance(event, Delta | Document) and is_content(event)
