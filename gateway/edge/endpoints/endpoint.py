"""One row for each endpoint that takes a call for a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.calls.prepare import Prepared
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Call
from gateway.edge.http_request import HttpRequest
from gateway.wire.responses import ResponseWriter


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What distinguishes one endpoint from the others."""

    name: str
    """The endpoint in metrics, log lines and call records."""
    path: str
    read: Callable[..., Call]
    """Makes a ``Call`` of the body: ``read(body, request_id=…, received=…)``; raises ``RequestError``."""
    prepare: Callable[[Route, Call], Awaitable[Prepared]]
    """Makes the effective request of a call: template, policy, limits."""
    respond: Callable[[Endpoint, HttpRequest, Call, Route, CallTimeline], Awaitable[None]]
    """Sends the answer: ``answer.respond`` for endpoints that run a model."""
    writer: Callable[..., ResponseWriter] | None = None
    """Writes events and completions in the endpoint's form; None: the engine's document is the answer."""
    id_prefix: str = ""
    """Ids of answers are ``{id_prefix}-{request id}``."""
