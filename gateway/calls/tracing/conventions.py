"""The attributes of spans: OpenTelemetry's conventions for generative AI, and our own with the prefix ``meta_gateway``.

No value is a text of a client. ``docs/tracing.md`` explains the names; a test compares them with this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from gateway.calls.preparation.prepare import prompt_sha256
from gateway.calls.timeline import UNKNOWN_MODEL
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import GatewayError, UpstreamTimeout
from gateway.core.exchange import Exchange
from gateway.policy.deliver.deadline import is_timeout
from gateway.telemetry.record import Record

SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
"""The version of the conventions (github.com/open-telemetry/semantic-conventions-genai)."""
OPERATIONS = {"completions": "text_completion", "responses": "chat"}
"""Endpoint → operation, for endpoints whose name is not that of their operation."""
PROVIDERS = {"azure": "azure.ai.openai", "bedrock": "aws.bedrock", "gemini": "gcp.gemini", "vertex_ai": "gcp.vertex_ai"}
"""LiteLLM's name of a provider → that of the conventions, if the two differ."""


def of_call(call: Record, finish_reasons: Mapping[int, str]) -> dict[str, Any]:
    """Return the attributes of an ended call. Empty values are left out of the span.

    ``finish_reasons``: the index of each choice that has ended → its finish reason.
    """
    return {
        "gen_ai.operation.name": OPERATIONS.get(call.endpoint, call.endpoint),
        "gen_ai.provider.name": "openai",  # whose API the gateway has
        "gen_ai.request.model": call.model if call.model != UNKNOWN_MODEL else None,
        "gen_ai.response.finish_reasons": tuple([reason for _, reason in sorted(finish_reasons.items())]),
        "gen_ai.response.time_to_first_chunk": call.first_token,
        "gen_ai.usage.input_tokens": call.prompt_tokens,
        "gen_ai.usage.output_tokens": call.completion_tokens,
        "http.response.status_code": call.status,
        "error.type": call.outcome if call.outcome != "ok" else None,
        "meta_gateway.template": call.template,
        "meta_gateway.queue.seconds": call.queue_wait,
        "meta_gateway.cache": call.cache,
        "meta_gateway.answers_cut": call.answers_cut,
    }


def of_attempt(target: TargetSpec, exchange: Exchange, error: BaseException | None) -> dict[str, Any]:
    """Return the attributes of an ended attempt. ``error``: what has ended it; None: it was answered."""
    url, provider = urlsplit(target.url), target.engine if target.url else target.speaks
    if target.speaks == "litellm":
        provider = target.model.partition("/")[0]
    known = error.code if isinstance(error, GatewayError) else None
    ended = "cancelled" if error is not None and not is_timeout(error) else error and UpstreamTimeout.code
    return {
        "gen_ai.operation.name": OPERATIONS.get(exchange.endpoint, exchange.endpoint),
        "gen_ai.provider.name": PROVIDERS.get(provider, provider),
        "gen_ai.request.model": target.model,
        "server.address": url.hostname,
        "server.port": url.port or {"http": 80, "https": 443}.get(url.scheme),
        "http.response.status_code": getattr(error, "upstream_status", None),
        "error.type": known or ended,
        "meta_gateway.target": target.label,
        "meta_gateway.prompt.sha256": prompt_sha256(exchange),
    }
