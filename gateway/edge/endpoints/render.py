"""``/v1/render``: accepts the body of a chat request, and explains the prompt without calling the model."""

from __future__ import annotations

from gateway.calls.explain import rendering
from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Call
from gateway.edge.http_request import HttpRequest
from gateway.edge.provenance import provenance


async def respond(request: HttpRequest, call: Call, route: Route, _timeline: CallTimeline) -> None:
    """Send the prompt that the model would receive, and how the prompt was made."""
    prepared, body = await rendering(route, call)
    request.commit()
    request.reply_json(200, body, provenance(route, prepared))
