"""Engines' finish reasons, translated to OpenAI's five.

Letter case, ``-`` and ``_`` make no difference. A reason that means "aborted" is an error, because ``stop`` would be
wrong; an unknown reason is an error for the same cause, until it has a row here.
"""

from __future__ import annotations

from gateway.core.errors import UpstreamError, UpstreamIncomplete, UpstreamInvalidResponse

FINISH_REASONS = {
    # OpenAI
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "function_call",
    # the model's end of text, or a stop string
    "eos": "stop",
    "eos_token": "stop",
    "end": "stop",
    "end_turn": "stop",
    "complete": "stop",
    "completed": "stop",
    "stop_sequence": "stop",
    "stop_str": "stop",
    "stop_token": "stop",
    # limit reached
    "max_tokens": "length",
    "max_new_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "context_length": "length",
    "model_context_window_exceeded": "length",
    # tools
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    # filters
    "safety": "content_filter",
    "refusal": "content_filter",
    "recitation": "content_filter",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}

ABORTED: dict[str, type[UpstreamError]] = {
    "abort": UpstreamIncomplete,
    "aborted": UpstreamIncomplete,
    "cancel": UpstreamIncomplete,
    "cancelled": UpstreamIncomplete,
    "canceled": UpstreamIncomplete,
    "insufficient_system_resource": UpstreamIncomplete,
    "error": UpstreamError,
}


def finish_reason(raw: object) -> str | None:
    """OpenAI's finish reason for an engine's; None while the choice goes on (null, or ``""``).

    Raises ``UpstreamIncomplete`` or ``UpstreamError`` for an aborted answer, ``UpstreamInvalidResponse`` for a reason
    that is not a string or not in the table.
    """
    if raw is None or raw == "":
        return None
    if not isinstance(raw, str):
        raise UpstreamInvalidResponse("the model's server sent a finish_reason that is not a string")
    reason = FINISH_REASONS.get(raw)  # nearly always OpenAI's own
    if reason is None:
        reason = FINISH_REASONS.get(word := raw.lower().replace("-", "_"))
    if reason is not None:
        return reason
    error = ABORTED.get(word)
    if error is not None:
        raise error(f"the model's server aborted the answer (finish_reason {word})")
    raise UpstreamInvalidResponse(f"the model's server sent an unknown finish_reason {raw[:32]!a}")
