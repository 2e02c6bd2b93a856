"""``POST /v1/render``: the body of a chat request, everything but the inference."""

from __future__ import annotations

from gateway.calls.prepare import prepare
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Call
from gateway.edge.endpoints.endpoint import Endpoint
from gateway.edge.http_request import HttpRequest
from gateway.edge.provenance import provenance, rendering
from gateway.wire.requests import read_chat


async def respond(endpoint: Endpoint, request: HttpRequest, call: Call, route: Route, timeline: CallTimeline) -> None:
    """Send the prompt that the model would be given, and how it was made."""
    prepared, body = await rendering(route, call)
    request.commit()
    request.reply_json(200, body, provenance(route, prepared))


RENDER = Endpoint(name="render", path="/v1/render", read=read_chat, prepare=prepare, respond=respond)
