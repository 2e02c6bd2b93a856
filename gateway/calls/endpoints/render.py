"""``/v1/render``: accepts the body of a chat request, and explains the prompt without calling the model."""

from __future__ import annotations

from functools import partial

from gateway.calls.endpoints.context import CallContext
from gateway.calls.endpoints.provenance import provenance
from gateway.calls.explain import rendering
from gateway.wire.requests import read_chat

read = partial(read_chat, answered=False)
"""Turns the body into a ``Call``, which may be a complete conversation."""


async def respond(context: CallContext) -> None:
    """Send the prompt that the model would receive, and how the prompt was made."""
    prepared, body = await rendering(context.route, context.call)
    context.reply(body, provenance(context.route, prepared))
