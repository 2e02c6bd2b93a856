"""Errors as OpenAI's error object."""

from __future__ import annotations

from typing import Any

from gateway.core.errors import GatewayError

MAX_PARAM = 128


def error_object(error: GatewayError) -> dict[str, Any]:
    """Return ``{"error": {message, type, param, code}}``. ``code`` is a string, as OpenAI's SDKs expect."""
    param = error.param if error.param is None else error.param[:MAX_PARAM]
    return {"error": {"message": error.message, "type": error.type, "param": param, "code": error.code}}
