"""Translates engines' finish reasons to OpenAI's five finish reasons.

Letter case, ``-`` and ``_`` make no difference. A reason that means "aborted" is an error, because ``stop`` would be
wrong. An unknown reason is an error too, until the table in this file has a row for it.
"""

from __future__ import annotations

from gateway.core.errors import UpstreamError, UpstreamIncomplete, UpstreamInvalidResponse

FINISH_REASONS = {
    **{reason: reason for reason in ("stop", "length", "tool_calls", "content_filter", "function_call")},  # OpenAI's
    # the model's end of text, or a stop string
    **dict.fromkeys(("eos", "eos_token", "end", "end_turn", "complete", "completed"), "stop"),
    **dict.fromkeys(("stop_sequence", "stop_str", "stop_token"), "stop"),
    # a length limit was reached
    **dict.fromkeys(("max_tokens", "max_new_tokens", "max_output_tokens", "model_length", "context_length"), "length"),
    "model_context_window_exceeded": "length",
    **dict.fromkeys(("tool_call", "tool_use"), "tool_calls"),
    **dict.fromkeys(("safety", "refusal", "recitation", "content_filtered"), "content_filter"),
    "guardrail_intervened": "content_filter",
}

ABORTED: dict[str, type[UpstreamError]] = {
    **dict.fromkeys(("abort", "aborted", "cancel", "cancelled", "canceled"), UpstreamIncomplete),
    "insufficient_system_resource": UpstreamIncomplete,
    "error": UpstreamError,
}


def finish_reason(raw: object) -> str | None:
    """Translate an engine's finish reason to OpenAI's. Return None for null or ``""``: the choice continues.

    Raises ``UpstreamIncomplete`` or ``UpstreamError`` for an aborted answer, ``UpstreamInvalidResponse`` for a reason
    that is not a string or not in the table.
    """
    if raw is None or raw == "":
        return None
    if not isinstance(raw, str):
        raise UpstreamInvalidResponse("the model's server sent a finish_reason that is not a string")
    reason = FINISH_REASONS.get(raw) or FINISH_REASONS.get(word := raw.lower().replace("-", "_"))
    if reason is not None:
        return reason
    error = ABORTED.get(word)
    if error is not None:
        raise error(f"the model's server aborted the answer (finish_reason {word})")
    raise UpstreamInvalidResponse(f"the model's server sent an unknown finish_reason {raw[:32]!a}")
