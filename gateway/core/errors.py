"""All errors of the gateway.

GatewayError                          500 internal_error
├── RequestError                      400 the request must be changed
│   ├── InvalidJson                   400 invalid_json
│   ├── JsonTooDeep                   400 json_too_deep
│   ├── InvalidBody                   400 invalid_body
│   ├── InvalidUnicode                400 invalid_unicode
│   ├── InvalidValue                  400 invalid_value
│   ├── UnsupportedParameter          400 unsupported_parameter
│   ├── ForbiddenParameter            400 forbidden_parameter
│   ├── RoleNotSupported              400 role_not_supported
│   ├── SpecialTokenInContent         400 special_token_in_content
│   ├── MediaNotSupported             400 media_not_supported
│   ├── MediaNotAllowed               400 media_not_allowed
│   ├── ContextLengthExceeded         400 context_length_exceeded
│   ├── ContentFiltered               400 content_filter
│   ├── UpstreamRejectedRequest       400 upstream_rejected_request
│   ├── NotRecorded                   400 not_recorded
│   ├── BadHost                       400 bad_host
│   ├── InvalidApiKey                 401 invalid_api_key
│   ├── ViewerClosed                  403 viewer_closed
│   ├── ModelNotFound                 404 model_not_found
│   ├── RouteNotFound                 404 route_not_found
│   ├── MethodNotAllowed              405 method_not_allowed
│   ├── RequestTimeout                408 request_timeout
│   ├── BodyTooLarge                  413 body_too_large
│   ├── UnsupportedMediaType          415 unsupported_media_type
│   ├── UnsupportedEncoding           415 unsupported_encoding
│   ├── RateLimitExceeded             429 rate_limit_exceeded
│   └── HeadTooLarge                  431 head_too_large
├── Overloaded                        503 overloaded: retry later
│   └── ServerDraining                503 server_draining
├── TemplateError                     500 template_error: a template cannot be applied
├── UpstreamError                     502 upstream_error: the model's server failed
│   ├── UpstreamUnreachable           502 upstream_unreachable
│   ├── UpstreamDnsError              502 upstream_dns_error
│   ├── UpstreamDisconnected          502 upstream_disconnected
│   ├── UpstreamInvalidResponse       502 upstream_invalid_response
│   ├── UpstreamInvalidStream         502 upstream_invalid_stream
│   ├── UpstreamTooLarge              502 upstream_response_too_large
│   ├── UpstreamIncomplete            502 upstream_incomplete
│   ├── UpstreamRedirect              502 upstream_redirect
│   ├── UpstreamAuthFailed            502 upstream_auth_failed
│   ├── UpstreamModelMissing          502 upstream_model_missing
│   ├── UpstreamQuotaExhausted        502 upstream_quota_exhausted
│   ├── UpstreamIgnoredParameter      502 upstream_ignored_parameter
│   │   └── ToolChoiceNotFollowed     502 tool_choice_not_followed
│   ├── UpstreamRateLimited           429 upstream_rate_limited
│   ├── UpstreamOverloaded            503 upstream_overloaded
│   └── UpstreamTimeout               504 upstream_timeout
│       ├── UpstreamConnectTimeout    504 upstream_connect_timeout
│       ├── UpstreamIdleTimeout       504 upstream_idle_timeout
│       └── DeadlineExceeded          504 deadline_exceeded
└── ConfigError                       the configuration is invalid; never sent to a client

Status, code, type and ``retryable`` are attributes of the class. ``retryable`` means that another attempt may succeed,
as long as no event was received (``docs/spec/reliability.md`` 4.1). Of a client's text, messages contain at most a
short, escaped name. Messages never contain an upstream's address, key or whole body.

The package ``metatemplate`` raises its own errors. ``as_gateway_error`` translates them where a call, a verb or a
Python program ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import metatemplate.errors as formats
from metatemplate.errors import Problem as Problem


class GatewayError(Exception):
    """Base class of all errors. The base class itself is for internal errors of the gateway."""

    status = 500
    code = "internal_error"
    type = "server_error"
    retryable = False

    def __init_subclass__(
        cls, code: str | None = None, status: int | None = None, type: str | None = None, retryable: bool | None = None
    ) -> None:
        """Set the class attributes in which an error class differs from its base class."""
        cls.code, cls.status = code or cls.code, status or cls.status
        cls.type = type or cls.type
        cls.retryable = cls.retryable if retryable is None else retryable

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.log_message = ""
        """The text in the log line of the refused call instead of ``message``; empty: the same as ``message``."""
        self.param = param
        self.retry_after = retry_after
        """Seconds after which the client may retry; for 429 and 503 only."""
        self.retried = False
        """True: the gateway has retried the call, or its retry budget is used up, so the response advises the client
        not to retry."""
        self.upstream_status = 0
        """The HTTP status of the upstream response that caused the error; 0 if no response caused the error."""
        self.reason = ""
        """The cause for the log, as one line without private data. If empty, the log shows ``message``."""


SEND_AGAIN = "send the request again (the log of the model's server may have the cause)"
"""What to do about an answer that has broken off."""


def drop_tracebacks(error: BaseException) -> None:
    """Release the stack frames of a handled error and of the earlier errors in its context.

    The frames refer to objects that refer to the error, such as a failed connection. This reference cycle would keep
    the call's memory until the garbage collector runs.
    """
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = None
        one = one.__context__


# ---------------------------------------------------------------- requests


class RequestError(GatewayError, status=400, code="invalid_request", type="invalid_request_error"):
    """The request cannot be served. The same request would fail again."""

    @classmethod
    def at(cls, place: str, problem: str) -> Self:
        """Return the error about a field. ``problem``: the message after the place, with its first space or colon."""
        return cls(place + problem, param=place)


class InvalidJson(RequestError, code="invalid_json"):
    """The body is not valid JSON in UTF-8. NaN, a BOM and an empty body are invalid too."""


class JsonTooDeep(RequestError, code="json_too_deep"):
    """The JSON of the body is nested deeper than 64 levels."""


class InvalidBody(RequestError, code="invalid_body"):
    """The body is JSON, but not an object."""


class InvalidUnicode(RequestError, code="invalid_unicode"):
    """A string contains a lone surrogate, or a character that the target cannot receive."""


class InvalidValue(RequestError, code="invalid_value"):
    """A field has the wrong type or is out of range. ``param`` is the name of the field."""


class UnsupportedParameter(RequestError, code="unsupported_parameter"):
    """The target does not accept this field, and the policy refuses such fields."""


class ForbiddenParameter(RequestError, code="forbidden_parameter"):
    """The request contains a field that only the operator may set (``api_base``, ``chat_template`` …)."""


class RoleNotSupported(RequestError, code="role_not_supported"):
    """The template cannot write a message of this role: the role, a mapping and a fallback are all missing."""


class SpecialTokenInContent(RequestError, code="special_token_in_content"):
    """A text of the request contains a marker of the model's template, and the policy refuses markers."""


class MediaNotSupported(RequestError, code="media_not_supported"):
    """The request contains a content part that is not text, but the template accepts only text."""


class MediaNotAllowed(RequestError, code="media_not_allowed"):
    """The request contains a media address that the policy or the gateway's rules refuse."""


class ContextLengthExceeded(RequestError, code="context_length_exceeded"):
    """Prompt and answer exceed the model's context. Evaluation harnesses rely on this code."""


class ContentFiltered(RequestError, code="content_filter"):
    """The provider refused the prompt by its content policy."""


class UpstreamRejectedRequest(RequestError, code="upstream_rejected_request"):
    """The model's server refused the request with a 4xx status."""


class NotRecorded(RequestError, code="not_recorded"):
    """The recording of a ``replay`` target has no answer to this request, or several different answers."""


class BadHost(RequestError, code="bad_host"):
    """The Host header names a host that the gateway does not serve."""


class ViewerClosed(RequestError, status=403, code="viewer_closed"):
    """The pages are not shown to this browser, or a request for a page's script did not come from a page."""


class InvalidApiKey(RequestError, status=401, code="invalid_api_key", type="authentication_error"):
    """The key is missing, wrong or expired. The response is the same in all cases; the log names an expired key."""


class ModelNotFound(RequestError, status=404, code="model_not_found"):
    """The configuration has no such model, or the client's API key may not use the model."""


class RouteNotFound(RequestError, status=404, code="route_not_found"):
    """The gateway has no such path."""


class MethodNotAllowed(RequestError, status=405, code="method_not_allowed"):
    """The path exists, but does not accept the method of the request."""


class RequestTimeout(RequestError, status=408, code="request_timeout"):
    """The head or the body of the request did not arrive in time."""


class BodyTooLarge(RequestError, status=413, code="body_too_large"):
    """The request body is larger than ``server.max_body``."""


class UnsupportedMediaType(RequestError, status=415, code="unsupported_media_type"):
    """The body is not declared as application/json."""


class UnsupportedEncoding(RequestError, status=415, code="unsupported_encoding"):
    """The body is compressed; only uncompressed bodies are accepted."""


class RateLimitExceeded(RequestError, status=429, code="rate_limit_exceeded", type="rate_limit_error"):
    """The call exceeds a limit of the client's key or of the model."""

    headers: Mapping[str, str] = {}
    """The ``x-ratelimit-*`` headers of the response."""


class HeadTooLarge(RequestError, status=431, code="head_too_large"):
    """The request line and header fields, or the framing of a chunked body, exceed the size limit."""


# ---------------------------------------------------------------- the gateway


class Overloaded(GatewayError, status=503, code="overloaded", retryable=True):
    """The gateway cannot accept this call now, because of load or a shutdown."""

    shed_reason = "in_flight"
    """The value of the label ``reason`` in ``gateway_shed_total``."""


class ServerDraining(Overloaded, code="server_draining", retryable=False):
    """The gateway shut down while the call was running. A call that arrives during a shutdown gets ``Overloaded``."""


class TemplateError(GatewayError, code="template_error"):
    """A template, or the input of a template, breaks the template rules (``docs/spec/opencompass.md``)."""


# ---------------------------------------------------------------- the model's server


class UpstreamError(GatewayError, status=502, code="upstream_error", retryable=True):
    """The model's server failed with a 5xx, or in a way that no other class describes."""


class UpstreamUnreachable(UpstreamError, code="upstream_unreachable"):
    """The connection was refused or was reset while connecting, or the TLS handshake failed."""


class UpstreamDnsError(UpstreamError, code="upstream_dns_error"):
    """The target's host name does not resolve."""


class UpstreamDisconnected(UpstreamError, code="upstream_disconnected"):
    """The connection was closed before the answer was complete."""

    stale = False
    """True: the connection was a reused one, and the server closed it before the request can have arrived."""


class UpstreamInvalidResponse(UpstreamError, code="upstream_invalid_response"):
    """The response is not HTTP, not JSON, or not a completion."""


class UpstreamInvalidStream(UpstreamError, code="upstream_invalid_stream"):
    """An event of the stream cannot be parsed; skipping it would lose text."""


class UpstreamTooLarge(UpstreamError, code="upstream_response_too_large", retryable=False):
    """The answer exceeds the size limit."""


class UpstreamIncomplete(UpstreamError, code="upstream_incomplete"):
    """The stream ended without a finish_reason."""


class UpstreamRedirect(UpstreamError, code="upstream_redirect", retryable=False):
    """The server answered with a redirect, which the gateway never follows."""


class UpstreamAuthFailed(UpstreamError, code="upstream_auth_failed", retryable=False):
    """The server refused the operator's key."""


class UpstreamModelMissing(UpstreamError, code="upstream_model_missing", retryable=False):
    """The server has no model with the configured name."""


class UpstreamQuotaExhausted(UpstreamError, code="upstream_quota_exhausted", retryable=False):
    """The operator's account at the provider has no quota left."""


class UpstreamIgnoredParameter(UpstreamError, code="upstream_ignored_parameter", retryable=False):
    """The server answered 200 but ignored a parameter of the request."""


class ToolChoiceNotFollowed(UpstreamIgnoredParameter, code="tool_choice_not_followed"):
    """``tool_choice`` forces a tool call, and the answer has no such call."""


class UpstreamRateLimited(UpstreamError, status=429, code="upstream_rate_limited", type="rate_limit_error"):
    """The server refused the request because of a rate limit of the operator's key."""


class UpstreamOverloaded(UpstreamError, status=503, code="upstream_overloaded"):
    """The server answered 503 or 529."""


class UpstreamTimeout(UpstreamError, status=504, code="upstream_timeout"):
    """The first content of the answer did not arrive in time."""


class UpstreamConnectTimeout(UpstreamTimeout, code="upstream_connect_timeout"):
    """No connection was made in time."""


class UpstreamIdleTimeout(UpstreamTimeout, code="upstream_idle_timeout"):
    """The stream stalled between two pieces of content."""


class DeadlineExceeded(UpstreamTimeout, code="deadline_exceeded", retryable=False):
    """The whole call took longer than its policy allows."""


# ---------------------------------------------------------------- configuration


CONFIG_FAILED = 3
"""Exit code of a process whose configuration cannot be used (uvicorn's code for a failed start)."""


class ConfigError(GatewayError, code="config_error"):
    """The configuration cannot be used. The error contains all problems found, in file order."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[Problem, ...]]]:
        return ConfigError, (self.problems,)  # a worker sends its errors to the supervisor


# ---------------------------------------------------------------- errors of metatemplate

OF_FORMATS: Mapping[type[formats.MetaTemplateError], type[GatewayError]] = {
    formats.InvalidInput: InvalidValue,
    formats.UnsupportedInput: UnsupportedParameter,
    formats.ForbiddenInput: ForbiddenParameter,
    formats.UnknownRole: RoleNotSupported,
    formats.UnsupportedMedia: MediaNotSupported,
    formats.ForgedMarker: SpecialTokenInContent,
    formats.LoneSurrogate: InvalidUnicode,
    formats.InputError: RequestError,
    formats.TemplateFailure: TemplateError,
    formats.RendererBusy: Overloaded,
    formats.MetaTemplateError: GatewayError,
}
"""Error of ``metatemplate`` → the error with the HTTP status and the code. Other errors have the row of their base."""


def as_gateway_error(error: GatewayError | formats.MetaTemplateError) -> GatewayError:
    """Return an error of ``metatemplate`` as the gateway's, with the same message; other errors are returned as is."""
    if isinstance(error, GatewayError):
        return error
    if isinstance(error, formats.InvalidFile):
        return ConfigError(error.problems)
    kind = next(OF_FORMATS[base] for base in type(error).__mro__ if base in OF_FORMATS)
    return kind(error.message, param=error.param, retry_after=error.retry_after)
