"""Errors as OpenAI's error object."""

from __future__ import annotations

from typing import Any

from gateway.core.errors import GatewayError

MAX_PARAM = 128


def error_object(error: GatewayError) -> dict[str, Any]:
    """``{"error": {message, type, param, code}}``; ``code`` is a string, as the SDKs type it."""
    param = error.param if error.param is None else error.param[:MAX_PARAM]
    return {"error": {"message": error.message, "type": error.type, "param": param, "code": error.code}}


def plain(key: str, limit: int = 64) -> str:
    """A client's key as part of a ``param``: letters, digits, ``_`` and ``-``; other characters become ``?``."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "?" for c in key[:limit])
