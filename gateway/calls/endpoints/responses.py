"""``POST /v1/responses``, and ``POST /v1/responses/input_tokens``, with answers in OpenAI's format."""

from __future__ import annotations

from functools import partial

from gateway.calls.endpoints import answer
from gateway.calls.endpoints.context import CallContext
from gateway.calls.endpoints.provenance import provenance
from gateway.calls.endpoints.tokenizing import tokenize_prepared
from gateway.calls.preparation.prepare import prepare
from gateway.wire.responses_api.writer import ResponsesApiWriter

respond = partial(answer.respond, ResponsesApiWriter)
"""Runs the call and sends the model's answer."""


async def respond_input_tokens(context: CallContext) -> None:
    """Send the number of tokens that the model would read for a request to ``/v1/responses``."""
    prepared = await prepare(context.route, context.call)
    tokens = await tokenize_prepared(context.route, prepared)
    body = {"object": "response.input_tokens", "input_tokens": tokens["count"]}
    context.reply(body, provenance(context.route, prepared))
