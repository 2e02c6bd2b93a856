"""``/v1/render``: accepts the body of a chat request, and explains the prompt without calling the model."""

from __future__ import annotations

from gateway.calls.explain import rendering
from gateway.edge.endpoints.context import CallContext
from gateway.edge.provenance import provenance


async def respond(context: CallContext) -> None:
    """Send the prompt that the model would receive, and how the prompt was made."""
    prepared, body = await rendering(context.route, context.call)
    context.reply(body, provenance(context.route, prepared))
