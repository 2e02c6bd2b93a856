"""What do LiteLLM's exceptions mean? Its classes, its causes and its statuses, under our own names.

Refused, reset and garbage all surface as LiteLLM's own 500, a status may be the string "overloaded", and a used-up
account is the same class as a rate limit (``specs/reliability.md`` 5): so the causes are asked before the class.
This file knows the classes by name only and imports nothing of LiteLLM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.backend.statuses import error_for_status, error_in_body, parse_retry_after
from gateway.core.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    GatewayError,
    UnsupportedParameter,
    UpstreamConnectTimeout,
    UpstreamDisconnected,
    UpstreamDnsError,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnreachable,
)

# By the name of a class in the chain of causes, the innermost first.
_CAUSES: Mapping[str, tuple[type[GatewayError], str]] = {
    "gaierror": (UpstreamDnsError, "the name of the provider's server does not resolve"),
    "ClientConnectorDNSError": (UpstreamDnsError, "the name of the provider's server does not resolve"),
    "ConnectTimeout": (UpstreamConnectTimeout, "no connection to the provider in time"),
    "ConnectionTimeoutError": (UpstreamConnectTimeout, "no connection to the provider in time"),
    "ConnectError": (UpstreamUnreachable, "the provider's server does not accept connections"),
    "ClientConnectorError": (UpstreamUnreachable, "the provider's server does not accept connections"),
    "ConnectionRefusedError": (UpstreamUnreachable, "the provider's server does not accept connections"),
    "JSONDecodeError": (UpstreamInvalidResponse, "the provider answered with something that is not JSON"),
    "APIResponseValidationError": (UpstreamInvalidResponse, "the provider's answer is not a completion"),
    "ReadError": (UpstreamDisconnected, "the provider closed the connection"),
    "RemoteProtocolError": (UpstreamDisconnected, "the provider closed the connection"),
    "ServerDisconnectedError": (UpstreamDisconnected, "the provider closed the connection"),
    "ClientPayloadError": (UpstreamDisconnected, "the provider closed the connection inside its answer"),
    "ConnectionResetError": (UpstreamDisconnected, "the provider closed the connection"),
}

# By the name of LiteLLM's own class.
_CLASSES: Mapping[str, tuple[type[GatewayError], str]] = {
    "ContextWindowExceededError": (
        ContextLengthExceeded,
        "prompt and answer do not fit the model's context; shorten the prompt or lower max_tokens",
    ),
    "ContentPolicyViolationError": (ContentFiltered, "the provider refused the prompt by its content policy"),
    "UnsupportedParamsError": (UnsupportedParameter, "this model's provider does not take one of the parameters"),
    "Timeout": (UpstreamTimeout, "the provider timed out"),
}


def named(error: Exception) -> GatewayError:
    """A foreign exception under our own name: by its causes, by its class, by its code, by its status."""
    if isinstance(error, GatewayError):
        return error
    chain = list(_chain(error))
    for table, links in ((_CAUSES, reversed(chain)), (_CLASSES, iter(chain))):
        for link in links:
            if (found := table.get(type(link).__name__)) is not None:
                return found[0](found[1])
    body = _body(chain)
    for link in chain:
        status = str(getattr(link, "status_code", ""))
        # LiteLLM says 500 whenever it does not know better; only a status that came over HTTP counts.
        real = status != "500" or any(type(cause).__name__ == "HTTPStatusError" for cause in chain)
        if status.isdigit() and 300 <= int(status) < 600 and real:
            told = body or {"error": {"message": _message(error)}}
            return error_for_status(int(status), orjson.dumps(told, default=str), "", _retry_after(chain))
    return error_in_body(body) or UpstreamInvalidResponse("the provider's answer could not be used")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The exception and what led to it, the outermost first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "original_exception", None) or error.__cause__ or error.__context__


def _body(chain: list[BaseException]) -> dict[str, Any]:
    """What the provider said, as an error body; empty when nothing of it is left."""
    for link in chain:
        body = getattr(link, "body", None)
        if isinstance(body, dict):
            return {"error": body} if "message" in body else body
    for link in chain:
        for code in (
            getattr(link, "code", None) if hasattr(link, "body") else None,
            getattr(link, "status_code", None),
        ):
            if isinstance(code, str) and not code.isdigit():
                return {"error": {"message": "", "code": code}}
    return {}


def _message(error: Exception) -> str:
    """LiteLLM's message without its own prefixes (``litellm.BadRequestError: OpenAIException - …``)."""
    return str(getattr(error, "message", "")).rpartition("Exception - ")[2]


def _retry_after(chain: list[BaseException]) -> float | None:
    for link in chain:
        headers = getattr(getattr(link, "response", None), "headers", None)
        if headers is not None and "retry-after" in headers:
            return parse_retry_after(headers["retry-after"], None)
    return None
