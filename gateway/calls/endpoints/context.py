"""One call while it is answered."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.calls.admission.facts import RequestFacts
from gateway.calls.answer.response import ResponseStream
from gateway.calls.endpoints.provenance import provenance
from gateway.calls.endpoints.sink import NO_FIELDS, AnswerSink, HeaderFields
from gateway.calls.preparation.prepare import Prepared
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Call
from gateway.policy.access.limits import Permit
from gateway.wire.responses import ResponseWriter


class CallContext:
    """One call while it is answered: what is known of it so far, and who receives its answer."""

    __slots__ = (
        "call",
        "facts",
        "is_admitted",
        "permit",
        "prepared",
        "route",
        "sink",
        "stream",
        "timeline",
        "writer",
    )

    call: Call
    """The call, for the model that answers. Set when the call is admitted."""
    route: Route
    """The route of the model that answers. Set when the call is admitted."""
    writer: ResponseWriter
    """Writes the stream. Set together with ``stream``."""

    def __init__(self, facts: RequestFacts, sink: AnswerSink, timeline: CallTimeline) -> None:
        self.facts = facts
        self.sink = sink
        self.timeline = timeline
        self.is_admitted = False
        """True: the call may run."""
        self.permit: Permit | None = None
        """The slots and charges of the call, which its end must release. None if neither its key nor its model has
        limits, and before they are taken."""
        self.prepared: Prepared | None = None
        """The prepared call, for the headers of the answer. None before the call is prepared."""
        self.stream: ResponseStream | None = None
        """The stream that is being sent. If the stream fails, the unsent text is sent before the error."""

    def use(self, prepared: Prepared) -> None:
        """Store the prepared call, and the facts about its rendering."""
        self.prepared = prepared
        timeline = self.timeline
        timeline.render, timeline.markers = prepared.render_seconds, prepared.markers
        if prepared.prompt is not None and prepared.prompt.metadata.notices:
            timeline.template_notices = tuple(notice.rule for notice in prepared.prompt.metadata.notices)

    def headers(self) -> HeaderFields:
        """Return the ``x-gateway-*`` headers of an answer; empty if the call is not prepared yet."""
        return NO_FIELDS if self.prepared is None else provenance(self.route, self.prepared, self.timeline)

    def reply(self, body: Any, headers: HeaderFields | None = None) -> None:
        """Send a whole answer in JSON, with its ``x-gateway-*`` headers or with ``headers``.

        Raises the reason of an earlier ``cancel``.
        """
        sink = self.sink
        sink.commit()
        sink.send_answer(200, self.headers() if headers is None else headers, orjson.dumps(body))
