"""LiteLLM's exceptions → the gateway's errors.

LiteLLM reports a refused connection, a reset, an invalid answer and a 529 all as status 500. A status may be the string
"overloaded", and an exhausted account has the class of a rate limit (``docs/spec/reliability.md`` 5). So the causes of
an exception are checked before its class. The provider's HTTP reply, which is the first cause, is checked before
LiteLLM's interpretation. Classes are compared by name, so that LiteLLM need not be imported.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import orjson

from gateway.backend.openai.error_mapping import error_for_status, error_in_body, one_safe_line, parse_retry_after
from gateway.core.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    GatewayError,
    UnsupportedParameter,
    UpstreamConnectTimeout,
    UpstreamDisconnected,
    UpstreamDnsError,
    UpstreamIncomplete,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnreachable,
)

LOG = logging.getLogger("gateway.litellm")

MAX_TEXT = 4096
"""The maximum number of characters that are read from an exception's message."""

# LiteLLM's prefix of a provider's message: ``litellm.BadRequestError: GeminiException BadRequestError - ``.
_CLASS_NAMES = re.compile(r"(?:(?:litellm\.)?\w{1,64}(?:Error|Exception)\b[\s:-]{0,4})+")

# Class name → error, for each class in the chain of causes, the innermost first.
_CAUSES: Mapping[str, tuple[type[GatewayError], str]] = {
    "gaierror": (UpstreamDnsError, "the host name of the provider's server does not resolve"),
    "ClientConnectorDNSError": (UpstreamDnsError, "the host name of the provider's server does not resolve"),
    "ConnectTimeout": (UpstreamConnectTimeout, "connecting to the provider took too long"),
    "ConnectionTimeoutError": (UpstreamConnectTimeout, "connecting to the provider took too long"),
    "ConnectError": (UpstreamUnreachable, "the provider's server does not accept connections"),
    "ClientConnectorError": (UpstreamUnreachable, "the provider's server does not accept connections"),
    "ConnectionRefusedError": (UpstreamUnreachable, "the provider's server does not accept connections"),
    "JSONDecodeError": (UpstreamInvalidResponse, "the provider sent a body that is not JSON"),
    "APIResponseValidationError": (UpstreamInvalidResponse, "the provider's answer is not a completion"),
    "ReadError": (UpstreamDisconnected, "the provider closed the connection"),
    "RemoteProtocolError": (UpstreamDisconnected, "the provider closed the connection"),
    "ServerDisconnectedError": (UpstreamDisconnected, "the provider closed the connection"),
    "ClientPayloadError": (UpstreamDisconnected, "the provider closed the connection in the middle of its answer"),
    "ConnectionResetError": (UpstreamDisconnected, "the provider closed the connection"),
    # LiteLLM 1.109 raises this error for a stream that ends without a finish reason.
    "StopAsyncIteration": (UpstreamIncomplete, "the provider ended its answer without a finish_reason"),
}

# Name of LiteLLM's exception class → error.
_CLASSES: Mapping[str, tuple[type[GatewayError], str]] = {
    "ContextWindowExceededError": (
        ContextLengthExceeded,
        "prompt and answer do not fit the model's context; shorten the prompt or lower max_tokens",
    ),
    "ContentPolicyViolationError": (ContentFiltered, "the provider refused the prompt by its content policy"),
    "Timeout": (UpstreamTimeout, "the provider timed out"),
}


def gateway_error(error: Exception, sent: Collection[str] = (), private: tuple[str, ...] = ()) -> GatewayError:
    """Return the gateway's error for an exception, by its causes, class, reply, code and status, in this order.

    ``sent``: the names of the call's parameters, to find the parameter that a refusal by LiteLLM names.
    ``private``: see ``error_mapping.one_safe_line``.
    """
    if isinstance(error, GatewayError):
        return error
    chain = list(_chain(error))
    for link in chain:
        if isinstance(link, ImportError):
            LOG.error("LiteLLM could not import a package that this call needs: %s", link)
            return GatewayError("the gateway's LiteLLM installation lacks a package for this call; see the log")
    text = _CLASS_NAMES.sub("", str(getattr(error, "message", ""))[:MAX_TEXT], count=1)
    for table, links in ((_CAUSES, reversed(chain)), (_CLASSES, iter(chain))):
        for link in links:
            if (found := table.get(type(link).__name__)) is not None:
                return _of_class(*found, one_safe_line(text, private), chain, private)
    if any(type(link).__name__ == "UnsupportedParamsError" for link in chain):
        return _unsupported(text, sent)
    for link in chain:
        if type(link).__name__ == "HTTPStatusError":
            return _of_reply(link, private)
    body = _body(chain)
    for link in chain:
        status = str(getattr(link, "status_code", ""))
        # LiteLLM's default is 500.
        if status.isdigit() and 300 <= int(status) < 600 and status != "500":
            told = body or {"error": {"message": text}}
            return error_for_status(int(status), orjson.dumps(told, default=str), private=private)
    return error_in_body(body, private) or UpstreamInvalidResponse("the provider's answer could not be used")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception and its causes, the outermost first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "original_exception", None) or error.__cause__ or error.__context__


def _of_class(
    kind: type[GatewayError], message: str, line: str, chain: list[BaseException], private: tuple[str, ...]
) -> GatewayError:
    """Return the error from a table. For a context overflow, use the provider's reply, which contains the token counts.

    ``line``: one safe line of the exception's text, for the log.
    """
    if kind is ContextLengthExceeded:
        for link in chain:
            if type(link).__name__ == "HTTPStatusError" and isinstance(error := _of_reply(link, private), kind):
                error.param = None  # a name of the provider's request, not of the client's
                return error
    error = kind(message)
    error.reason = f"{message}: {line}" if line else ""
    return error


def _of_reply(error: Any, private: tuple[str, ...]) -> GatewayError:
    """Return the error for the provider's own HTTP reply. ``error`` is an exception of httpx."""
    reply = error.response
    try:
        content = reply.content
    except RuntimeError:  # a stream whose body was not read
        content = b""
    headers = reply.headers
    wait = parse_retry_after(headers.get("retry-after"), headers.get("retry-after-ms"))
    kind, location = headers.get("content-type", ""), headers.get("location")
    return error_for_status(reply.status_code, content, kind, wait, private=private, location=location)


def _unsupported(text: str, sent: Collection[str]) -> UnsupportedParameter:
    """Return the error for a parameter that LiteLLM itself refused. Nothing was sent to the provider."""
    quoted = re.findall(r"['\[](\w{1,64})['=\]]|\b(\w{1,64})=", text)  # a bare word may belong to the model's name
    names = [*(first or second for first, second in quoted), *re.findall(r"\w{1,64}", text)]
    param = next((name for name in names if name in sent), None)
    reason = one_safe_line(text).partition(" To drop ")[0]  # the rest is advice for users of LiteLLM
    message = f"the gateway does not send {param or 'a parameter'} to this model's provider: {reason}"
    return UnsupportedParameter(
        f"{message} (the operator can leave it out with omit in the model's entry)" if param else message, param=param
    )


def _body(chain: list[BaseException]) -> dict[str, Any]:
    """Return the error body that an answer contains. Empty if the answer contains no error."""
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
    # The innermost exception has the provider's message; a single word, such as Anthropic's "Overloaded", is a code.
    text = str(getattr(chain[-1], "message", ""))
    return {"error": {"message": "", "code": text}} if re.fullmatch(r"\w{1,64}", text) else {}
