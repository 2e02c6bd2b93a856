"""A server's error, as status and body → one of the gateway's errors.

Bodies have many forms: ``{"error": {…}}`` with a string or a numeric code, ``{"error": "text"}``, ``{"detail": …}``,
``{"object": "error", …}``, plain text, HTML, tracebacks. Each body becomes an ``UpstreamErrorBody``, and tables choose
the error. If the server refused the *request*, the error contains one line of the server's message, made safe by
``one_safe_line``, because the client must know what to change. The log gets such a line for every error
(``GatewayError.reason``).

If a server echoes the request, a client can choose the server's words. Some regular expressions need quadratic time, so
each expression searches at most ``MAX_SEARCHED`` characters.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from gateway.core.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    GatewayError,
    UpstreamAuthFailed,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamModelMissing,
    UpstreamOverloaded,
    UpstreamQuotaExhausted,
    UpstreamRateLimited,
    UpstreamRedirect,
    UpstreamRejectedRequest,
    UpstreamTimeout,
    UpstreamUnreachable,
)

MAX_ERROR_BODY = 64 * 1024
"""The maximum number of bytes that are read from an error body."""
MAX_SEARCHED = 500
"""The maximum number of characters of a message, a code or a type that regular expressions search."""
MIN_ANYWHERE = 8
"""A private text of at least this many characters is also removed inside a word."""
MAX_LINE = 200
"""The maximum number of characters of a server's message that are sent to a client."""


@dataclass(frozen=True, slots=True)
class UpstreamErrorBody:
    """A server's error, in one form for all servers."""

    message: str = ""
    code: str = ""
    """The error code in lower case. A numeric code is converted to a string."""
    type: str = ""
    """The error type in lower case."""
    param: str | None = None


USED_UP = "the gateway's account at the provider has no quota left; the operator has to check the account"
BAD_KEY = "the model's server refused the gateway's key; the operator has to check the key"
REDIRECTED = (
    "the model's server answered with a redirect (status {}); the operator has to configure the final url "
    "(the gateway's log has it)"
)
WITHOUT_REASON = " without a usable reason"
OVERLOADED = "the model's server is overloaded or not ready"

EXPECTS_TLS = "the model's server expects TLS at this port; use https:// instead of http:// in url"
_EXPECTS_TLS = re.compile(rb"plain HTTP request was sent to HTTPS port|HTTP request to an HTTPS server")
"""The text that nginx and Go's servers send with status 400 if a TLS port receives plain HTTP."""

# (error, its message, statuses, expression over code, type and message): the first match decides.
_MEANINGS: tuple[tuple[type[GatewayError], str, frozenset[int], re.Pattern[str]], ...] = (
    (
        # OpenAI and vLLM ("maximum context length"), llama.cpp ("available context size", exceed_context_size_error),
        # llama-cpp-python ("exceed context window"), TGI ("tokens + `max_new_tokens` must be <="), Ollama ("exceeds the
        # context length"), Gemini ("exceeds the maximum number of tokens"), others.
        ContextLengthExceeded,
        "prompt and answer do not fit the model's context; shorten the prompt or lower max_tokens",
        frozenset({400, 413, 422, 500}),
        re.compile(
            r"context_length_exceeded|maximum context length|exceed_context_size|context (?:size|window|limit)"
            r"|exceeds the context length|exceeds the maximum number of tokens"
            r"|longer than the model's context|max_new_tokens`? must be <=|prompt is too long"
            r"|`?inputs`? must have less than"
        ),
    ),
    (
        ContentFiltered,
        "the provider refused the prompt by its content policy",
        frozenset({400, 403, 422}),
        re.compile(r"content_filter|content_policy|content management policy|responsibleaipolicyviolation"),
    ),
    (
        UpstreamQuotaExhausted,
        USED_UP,
        frozenset({400, 403, 429}),
        re.compile(r"insufficient_quota|billing_hard_limit|exceeded your current quota|credit balance"),
    ),
    (UpstreamAuthFailed, BAD_KEY, frozenset({400}), re.compile(r"^api_key_invalid$", re.MULTILINE)),  # Gemini
)

_STATUSES: Mapping[int, tuple[type[GatewayError], str]] = {
    400: (UpstreamRejectedRequest, "the model's server refused the request"),
    401: (UpstreamAuthFailed, BAD_KEY),
    402: (UpstreamQuotaExhausted, USED_UP),
    403: (UpstreamAuthFailed, BAD_KEY),
    404: (
        UpstreamModelMissing,
        "the model's server has no such model or path; the operator has to check model and url (of an "
        "OpenAI-compatible server: up to /v1)",
    ),
    407: (UpstreamUnreachable, "the proxy refuses the request; the operator has to set or correct proxy_auth"),
    408: (UpstreamTimeout, "the model's server timed out"),
    413: (UpstreamRejectedRequest, "the model's server refused the request as too large"),
    415: (UpstreamRejectedRequest, "the model's server refused the request's content type"),
    422: (UpstreamRejectedRequest, "the model's server refused the request"),
    429: (UpstreamRateLimited, "the model's server limits the rate of requests"),
    503: (UpstreamOverloaded, OVERLOADED),
    529: (UpstreamOverloaded, OVERLOADED),
}

# Errors inside a 200 have no status; their code or type implies one.
_WORDS: Mapping[str, int] = {
    "overloaded": 503,
    "overloaded_error": 503,
    "service_unavailable": 503,
    "serviceunavailableerror": 503,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "ratelimiterror": 429,
    "insufficient_quota": 429,
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "content_filter": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "notfounderror": 404,
    "model_not_found": 404,
}


def error_for_status(
    status: int,
    body: bytes,
    content_type: str = "",
    retry_after: float | None = None,
    *,
    target: str = "",
    private: tuple[str, ...] = (),
    location: str | None = None,
) -> GatewayError:
    """Return the error for an unsuccessful response.

    ``target``: the target's label, for the message if the response has no usable reason. ``private``: see
    ``one_safe_line``. ``location``: the header of a redirect.
    """
    size = _size(body, content_type)
    reply = f" (target {target} sent status {status} with {size})" if target else ""
    parsed = read_error_body(body, content_type)
    if status == 400 and _EXPECTS_TLS.search(body, 0, MAX_SEARCHED):
        error: GatewayError = UpstreamUnreachable(EXPECTS_TLS)
    else:
        error = _error(status, parsed, retry_after, private, reply)
    error.upstream_status = status
    if location and isinstance(error, UpstreamRedirect):
        error.reason = _redirect(location, private)
    else:
        error.reason = _reason(parsed, private) or f"the server sent no reason ({size}{_first_words(body, private)})"
    return error


def not_json(body: bytes, private: tuple[str, ...] = ()) -> UpstreamInvalidResponse:
    """Return the error for a response with status 200 that is not JSON. ``private``: see ``one_safe_line``."""
    page = "an HTML page instead of JSON; the operator has to check url (up to /v1)"
    is_page = _is_page(body)  # any other text may be the model's answer, which the log must not contain
    error = UpstreamInvalidResponse(f"the model's server sent {page if is_page else 'a body that is not JSON'}")
    error.upstream_status = 200
    error.reason = f"the answer is not JSON ({_size(body)}{_first_words(body, private) if is_page else ''})"
    return error


def error_in_body(value: Mapping[str, Any], private: tuple[str, ...] = ()) -> GatewayError | None:
    """Return the error that a response with status 200 contains, or None. ``private``: see ``one_safe_line``."""
    parsed = _from_json(value)
    if parsed is None:
        return None
    status = re.fullmatch(r"[45]\d\d", parsed.code)
    implied = int(status[0]) if status else _WORDS.get(parsed.code) or _WORDS.get(parsed.type) or 500
    error = _error(implied, parsed, None, private)
    error.upstream_status = 200
    error.reason = _reason(parsed, private)
    return error


def parse_retry_after(retry_after: str | None, retry_after_ms: str | None, now: float | None = None) -> float | None:
    """Return the seconds to wait before a retry, from 1 to 3600; None if neither header has a valid value.

    ``now``: seconds since the epoch, for dates.
    """
    found = [
        float(text) * scale
        for text, scale in ((retry_after_ms, 0.001), (retry_after, 1.0))
        if text is not None and re.fullmatch(r"\s*-?\d{1,12}(\.\d{1,9})?\s*", text)
    ]
    if not found:
        try:
            found = [parsedate_to_datetime(retry_after or "").timestamp() - (time.time() if now is None else now)]
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(found[0], 1.0), 3600.0)


def read_error_body(body: bytes, content_type: str = "") -> UpstreamErrorBody:
    """Parse an error body. The result is empty if nothing in the body is usable."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        text = "" if "html" in content_type else body[:MAX_ERROR_BODY].decode("utf-8", "replace")
        return UpstreamErrorBody(message=text)
    return (_from_json(value) if isinstance(value, dict) else None) or UpstreamErrorBody()


def one_safe_line(text: str, private: tuple[str, ...] = ()) -> str:
    """Return the first line of a server's message without addresses, host names, paths, keys and markup; may be empty.

    ``private``: texts to remove in any letter case, such as the target's key and host name.
    """
    begun = text[: 64 * MAX_SEARCHED].lstrip()[: MAX_SEARCHED + 1]
    line = begun.splitlines()[0] if begun else ""
    if line.startswith(("<", "Traceback", "{", "[")):
        return ""
    if len(line) > MAX_SEARCHED:  # drop the last word: the expressions for keys do not find a part of a key
        line = line[: max(line.rfind(" "), 0)] + " …"
    line = "".join(character for character in line if character.isprintable())
    for pattern in (*map(_private, private), *_PRIVATE):
        line = pattern.sub("…", line)
    line = line.strip()
    return line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…"


def _reason(parsed: UpstreamErrorBody, private: tuple[str, ...]) -> str:
    """Return the server's message, or the last line of a traceback, as one safe line. No message: return the code."""
    text = parsed.message.strip()[: 64 * MAX_SEARCHED]
    if text.startswith("Traceback"):
        text = text.rpartition("\n")[2]
    return one_safe_line(text, private) or one_safe_line(parsed.code or parsed.type, private)


def _is_page(body: bytes) -> bool:
    return body[:MAX_SEARCHED].lstrip().startswith(b"<")


def _size(body: bytes, content_type: str = "") -> str:
    kind = "an HTML page" if _is_page(body) or "html" in content_type else "a body"
    return f"{kind} of {len(body)} bytes" if body else "an empty body"


def _first_words(body: bytes, private: tuple[str, ...]) -> str:
    """Return the first line of a body or of the text of an HTML page, after a colon; empty if there is no text."""
    text = body[:MAX_ERROR_BODY].decode("utf-8", "replace")
    line = one_safe_line(_TAG.sub("\n", text) if _is_page(body) else text, private)
    return f": {line}" if line else ""


def _redirect(location: str, private: tuple[str, ...]) -> str:
    """Return the reason for a redirect. If ``location`` is the whole address of an endpoint, the reason has the url."""
    address = address_without_secrets(location[:MAX_SEARCHED], private)
    url = address.removesuffix("/completions").removesuffix("/chat")
    return f"redirect to {address}" + (f"; set url to {url}" if "://" in url and url != address else "")


def address_without_secrets(address: str, private: tuple[str, ...] = ()) -> str:
    """Return an address without user name, password, parameters, query and fragment, and its path without keys.

    ``private``: texts to remove from the path, such as the target's key.
    """
    address = _SECRET_PARTS.sub("", address)
    host = _HOST.match(address)
    start = host.end() if host is not None else 0
    path = address[start:]
    for pattern in map(_private, private):
        path = pattern.sub("…", path)
    for pattern in _KEYS:  # words without a digit, such as hf-inference, are not keys
        path = pattern.sub(lambda found: "…" if re.search(r"\d", found[0]) else found[0], path)
    return address[:start] + path


_TAG = re.compile(r"<[^<>]*>")
_SECRET_PARTS = re.compile(r"(?<=//)[^/?#]*@|[;?#].*", re.DOTALL)
"""User name and password, parameters, query and fragment of an address."""
_HOST = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//[^/]*", re.IGNORECASE)
"""The beginning of an address before its path."""


def _private(text: str) -> re.Pattern[str]:
    """Return an expression for a private text. A short text must be a whole word, because a host may be named ``a``."""
    escaped = re.escape(text)
    return re.compile(escaped if len(text) >= MIN_ANYWHERE else rf"(?<!\w){escaped}(?!\w)", re.IGNORECASE)


_KEYS = (
    # Words with an issuer's prefix, words after "Bearer" or "api key", long words of letters and digits.
    re.compile(r"\b(?:sk|pk|rk|key|hf|api|gsk|xai|nvapi|fw|r8|gh[opsu])[-_][\w*.-]{6,}", re.IGNORECASE),
    re.compile(r"\b(?:AIza|ya29\.|AKIA|ASIA|eyJ)[\w*.-]{8,}"),
    re.compile(r"\bBearer\s+\S+|\bapi[ _-]?key\s*[:=]\s*\S+", re.IGNORECASE),
    re.compile(r"\b(?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{32,}\b", re.IGNORECASE),
)
_PRIVATE = (
    re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE),  # URLs
    re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"),  # IPv4 addresses
    re.compile(r"\b(?:localhost|[a-z0-9]+(?:[.-][a-z0-9]+)+):\d{2,5}\b", re.IGNORECASE),  # a host and its port
    re.compile(r"\b(?:[a-z0-9-]+\.)+(?:internal|intranet|local|localdomain|lan|corp|svc)\b", re.IGNORECASE),
    re.compile(r"(?<![\w/])(?:/[\w.@+-]+){2,}"),  # file paths
    *_KEYS,
)


def _error(
    status: int, parsed: UpstreamErrorBody, retry_after: float | None, private: tuple[str, ...], reply: str = ""
) -> GatewayError:
    """Return the error for the status and the words of the server.

    ``reply``: a description of the response, for the message if the response has no usable reason.
    """
    words = f"{parsed.code}\n{parsed.type}\n{parsed.message[:MAX_SEARCHED].lower()}"
    for kind, message, statuses, pattern in _MEANINGS:
        if status in statuses and pattern.search(words):
            if kind is ContextLengthExceeded:  # the server's message has the numbers of tokens
                line = one_safe_line(parsed.message, private)
                return kind(f"{message}: {line}" if line else message, param=parsed.param)
            return kind(message)
    if 300 <= status < 400:
        return UpstreamRedirect(REDIRECTED.format(status))
    failed = f"the model's server answered with status {status}; the gateway's log has the server's message"
    kind, message = _STATUSES.get(status, (UpstreamError, failed))
    if kind is UpstreamRejectedRequest:
        line = one_safe_line(parsed.message, private)
        reason = f": {line}" if line else f"{WITHOUT_REASON}{reply}"
        return kind(message + reason, param=parsed.param)
    error = kind(message, retry_after=retry_after if status in (429, 503, 529) else None)
    if kind is UpstreamError and 400 <= status < 500 and status not in (409, 425):
        error.retryable = False  # the same request would be refused again
    return error


def _from_json(value: Mapping[str, Any]) -> UpstreamErrorBody | None:
    error = value.get("error")
    if isinstance(error, dict):
        return _from_object(error)
    if isinstance(error, str) and error:
        return UpstreamErrorBody(message=error, type=_word(value.get("error_type")))
    has_result = "choices" in value or "data" in value
    if "detail" in value and not has_result and value.get("object") != "error":
        return UpstreamErrorBody(message=_detail(value["detail"]))
    is_error = value.get("object") == "error" or (isinstance(value.get("message"), str) and not has_result)
    return _from_object(value) if is_error else None


def _from_object(error: Mapping[str, Any]) -> UpstreamErrorBody:
    message, param = error.get("message"), error.get("param")
    return UpstreamErrorBody(
        message=message if isinstance(message, str) else "",
        code=_word(error.get("code")),
        type=_word(error.get("type")) or _google_reason(error.get("details")),
        param=param if isinstance(param, str) and re.fullmatch(r"[\w.\[\]]{1,64}", param) else None,
    )


def _word(value: object) -> str:
    """Return a code or a type in lower case; empty if the value is neither a string nor an integer."""
    return str(value)[:MAX_SEARCHED].lower() if isinstance(value, str | int) else ""


def _google_reason(details: object) -> str:
    """Return the reason in Google's list ``error.details`` in lower case, such as ``api_key_invalid``."""
    rows = details if isinstance(details, list) else ()
    return next((_word(row["reason"]) for row in rows if isinstance(row, dict) and "reason" in row), "")


def _detail(detail: object) -> str:
    """Return FastAPI's ``detail`` as text. Of a list, only place and message of the first entry are used."""
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        steps, message = detail[0].get("loc"), detail[0].get("msg")
        steps = steps if isinstance(steps, list) else []
        place = ".".join([str(step) for step in steps if isinstance(step, str | int) and step != "body"])
        return f"{place}: {message if isinstance(message, str) else 'invalid'}"
    return detail if isinstance(detail, str) else ""
