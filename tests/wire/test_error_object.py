"""OpenAI's error object."""

from __future__ import annotations

import pytest

from gateway.core.errors import ContextLengthExceeded, GatewayError, InvalidApiKey, InvalidValue, UpstreamRateLimited
from gateway.wire.error_object import error_object

OBJECTS = {
    "with a param": (InvalidValue("n: too many", param="n"), ("invalid_request_error", "n", "invalid_value")),
    "without": (ContextLengthExceeded("long"), ("invalid_request_error", None, "context_length_exceeded")),
    "a long param": (InvalidValue("x", param="p" * 500), ("invalid_request_error", "p" * 128, "invalid_value")),
    "a key": (InvalidApiKey("no"), ("authentication_error", None, "invalid_api_key")),
    "a rate": (UpstreamRateLimited("slow"), ("rate_limit_error", None, "upstream_rate_limited")),
    "ours": (GatewayError("oh"), ("server_error", None, "internal_error")),
}


@pytest.mark.parametrize(("error", "expected"), OBJECTS.values(), ids=OBJECTS)
def test_an_error_is_openais_object(error: GatewayError, expected: tuple[str, str | None, str]) -> None:
    body = error_object(error)
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert body["error"]["message"] == error.message
    assert (body["error"]["type"], body["error"]["param"], body["error"]["code"]) == expected
