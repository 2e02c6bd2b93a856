"""What does a model's server mean by its error? Status and body in, one of our errors out.

Servers complain in many shapes (``specs/clients.md`` 2.1): ``{"error": {…}}`` with a string or a numeric
code, ``{"error": "text"}``, ``{"detail": …}``, ``{"object": "error", …}``, plain text, HTML, tracebacks. They become
one ``UpstreamErrorBody``, and tables name the error. Only a refusal of the *request* passes on a line of the
server's own words, made safe by ``one_safe_line``, because a client has to learn what to change.

A client may choose these words, through a server that echoes its request. So every expression is matched against
``MAX_SEARCHED`` characters at most: some of them take time in the square of the length.
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
    UpstreamModelMissing,
    UpstreamOverloaded,
    UpstreamQuotaExhausted,
    UpstreamRateLimited,
    UpstreamRedirect,
    UpstreamRejectedRequest,
    UpstreamTimeout,
)

MAX_ERROR_BODY = 64 * 1024
"""Bytes of an error body that are looked at."""
MAX_SEARCHED = 500
"""Characters of a server's own words, of its codes and types, that any expression is matched against."""
MIN_ANYWHERE = 8
"""Characters from which a private text is removed inside words too."""
MAX_LINE = 200
"""Characters of a server's own words that may reach a client."""


@dataclass(frozen=True, slots=True)
class UpstreamErrorBody:
    """A server's error, whatever its shape."""

    message: str = ""
    code: str = ""
    """Lower case; a numeric code as its digits."""
    type: str = ""
    """Lower case."""
    param: str | None = None


# ---------------------------------------------------------------- the tables

# The word that decides, wherever it stands: code, type or message. First match wins.
_MEANINGS: tuple[tuple[re.Pattern[str], type[GatewayError], frozenset[int]], ...] = (
    (
        # OpenAI and vLLM ("maximum context length"), llama.cpp ("available context size", exceed_context_size_error),
        # llama-cpp-python ("exceed context window"), TGI ("tokens + `max_new_tokens` must be <="), Ollama ("exceeds the
        # context length"), Gemini ("exceeds the maximum number of tokens"), others.
        re.compile(
            r"context_length_exceeded|maximum context length|exceed_context_size|context (?:size|window|limit)"
            r"|exceeds the context length|exceeds the maximum number of tokens"
            r"|longer than the model's context|max_new_tokens`? must be <=|prompt is too long"
            r"|`?inputs`? must have less than"
        ),
        ContextLengthExceeded,
        frozenset({400, 413, 422, 500}),
    ),
    (
        re.compile(r"content_filter|content_policy|content management policy|responsibleaipolicyviolation"),
        ContentFiltered,
        frozenset({400, 403, 422}),
    ),
    (
        re.compile(r"insufficient_quota|billing_hard_limit|exceeded your current quota|credit balance"),
        UpstreamQuotaExhausted,
        frozenset({400, 403, 429}),
    ),
)

_STATUSES: Mapping[int, tuple[type[GatewayError], str]] = {
    400: (UpstreamRejectedRequest, "the model's server refused the request"),
    401: (UpstreamAuthFailed, "the model's server refused the gateway's key; the operator has to check it"),
    402: (UpstreamQuotaExhausted, "the gateway's account at the provider is used up"),
    403: (UpstreamAuthFailed, "the model's server refused the gateway's key; the operator has to check it"),
    404: (
        UpstreamModelMissing,
        "the model's server knows no such model or path; the operator has to check url and model",
    ),
    408: (UpstreamTimeout, "the model's server timed out"),
    413: (UpstreamRejectedRequest, "the model's server finds the request too large"),
    415: (UpstreamRejectedRequest, "the model's server refused the request's form"),
    422: (UpstreamRejectedRequest, "the model's server refused the request"),
    429: (UpstreamRateLimited, "the model's server limits the rate of requests"),
    503: (UpstreamOverloaded, "the model's server is overloaded or not ready"),
    529: (UpstreamOverloaded, "the model's server is overloaded or not ready"),
}

# Errors inside a 200 carry no status; their code or type stands for one.
_WORDS: Mapping[str, int] = {
    "overloaded": 503, "overloaded_error": 503, "service_unavailable": 503, "serviceunavailableerror": 503,
    "rate_limit_error": 429, "rate_limit_exceeded": 429, "ratelimiterror": 429, "insufficient_quota": 429,
    "invalid_request_error": 400, "badrequesterror": 400, "content_filter": 400, "context_length_exceeded": 400,
    "authentication_error": 401, "invalid_api_key": 401, "permission_error": 403,
    "not_found_error": 404, "notfounderror": 404, "model_not_found": 404,
}  # fmt: skip

_RETRY_OTHER_4XX = frozenset({409, 425})


# ---------------------------------------------------------------- from a reply


def error_for_status(
    status: int,
    body: bytes,
    content_type: str = "",
    retry_after: float | None = None,
    *,
    target: str = "",
    private: tuple[str, ...] = (),
) -> GatewayError:
    """The error that a reply other than 200 stands for.

    ``target``: the label of the target that sent it, for a reply that gives no reason. ``private``: see
    ``one_safe_line``.
    """
    size = f"a body of {len(body)} bytes" if body else "an empty body"
    reply = f" (target {target} sent status {status} with {size})" if target else ""
    return _judge(status, read_complaint(body, content_type), retry_after, private, reply)


def error_in_body(value: Mapping[str, Any], private: tuple[str, ...] = ()) -> GatewayError | None:
    """The error inside a JSON object that came with status 200, or None when it is none (row B20).

    ``private``: see ``one_safe_line``.
    """
    complaint = _from_json(value)
    if complaint is None:
        return None
    return _judge(_status_of(complaint), complaint, None, private)


def parse_retry_after(retry_after: str | None, retry_after_ms: str | None, now: float | None = None) -> float | None:
    """Seconds to wait, within 1 to 3600; None when the server said nothing sensible (row B14).

    ``now`` is in seconds since the epoch and only matters for dates.
    """
    for text, scale in ((retry_after_ms, 0.001), (retry_after, 1.0)):
        if text is not None and re.fullmatch(r"\s*-?\d{1,12}(\.\d{1,9})?\s*", text):
            return _clamp(float(text) * scale)
    if retry_after is None:
        return None
    try:
        when = parsedate_to_datetime(retry_after).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return _clamp(when - (time.time() if now is None else now))


def read_complaint(body: bytes, content_type: str = "") -> UpstreamErrorBody:
    """A server's error body as a ``UpstreamErrorBody``; empty when it says nothing that we can use."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        text = body[:MAX_ERROR_BODY].decode("utf-8", "replace")
        return UpstreamErrorBody() if "html" in content_type else UpstreamErrorBody(message=text)
    return (_from_json(value) if isinstance(value, dict) else None) or UpstreamErrorBody()


def one_safe_line(text: str, private: tuple[str, ...] = ()) -> str:
    """The first line of a server's message without addresses, host names, paths, keys and markup; may be empty.

    ``private``: what is known to be private, such as the target's key and host name; removed in any letter case.
    """
    begun = text[: 64 * MAX_SEARCHED].lstrip()[: MAX_SEARCHED + 1]
    line = begun.splitlines()[0] if begun else ""
    if line.startswith(("<", "Traceback", "{", "[")):
        return ""
    if (
        len(line) > MAX_SEARCHED
    ):  # without the last word, which is cut off: half of a key does not match the patterns for keys
        line = line[: max(line.rfind(" "), 0)] + " …"
    line = "".join(character for character in line if character.isprintable())
    for known in private:
        line = _known(known).sub("…", line)
    for pattern in _PRIVATE:
        line = pattern.sub("…", line)
    line = line.strip()
    return line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…"


def _known(text: str) -> re.Pattern[str]:
    """A short one only as a word of its own: a host may be called ``a``."""
    escaped = re.escape(text)
    return re.compile(escaped if len(text) >= MIN_ANYWHERE else rf"(?<!\w){escaped}(?!\w)", re.IGNORECASE)


_PRIVATE = (
    re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE),  # URLs
    re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"),  # IPv4 addresses
    re.compile(r"\b(?:localhost|[a-z0-9]+(?:[.-][a-z0-9]+)+):\d{2,5}\b", re.IGNORECASE),  # a host and its port
    re.compile(r"\b(?:[a-z0-9-]+\.)+(?:internal|intranet|local|localdomain|lan|corp|svc)\b", re.IGNORECASE),
    re.compile(r"(?<![\w/])(?:/[\w.@+-]+){2,}"),  # file paths
    # Keys: by their issuers' prefixes, behind the word, and anything long that is nothing but letters and digits.
    re.compile(r"\b(?:sk|pk|rk|key|hf|api|gsk|xai|nvapi|fw|r8|gh[opsu])[-_][\w*.-]{6,}", re.IGNORECASE),
    re.compile(r"\b(?:AIza|ya29\.|AKIA|ASIA|eyJ)[\w*.-]{8,}"),
    re.compile(r"\bBearer\s+\S+|\bapi[ _-]?key\s*[:=]\s*\S+", re.IGNORECASE),
    re.compile(r"\b(?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{32,}\b", re.IGNORECASE),
)


# ---------------------------------------------------------------- inside


def _judge(
    status: int, complaint: UpstreamErrorBody, retry_after: float | None, private: tuple[str, ...], reply: str = ""
) -> GatewayError:
    """``reply``: what a client reads of a refusal that gives no reason."""
    words = f"{complaint.code}\n{complaint.type}\n{complaint.message[:MAX_SEARCHED].lower()}"
    for pattern, kind, statuses in _MEANINGS:
        if status in statuses and pattern.search(words):
            return kind(_FIXED[kind], param=_param(complaint) if kind is ContextLengthExceeded else None)
    if 300 <= status < 400:
        return UpstreamRedirect(
            "the model's server answered with a redirect; the operator has to configure the final url"
        )
    kind, message = _STATUSES.get(status, (UpstreamError, f"the model's server answered with status {status}"))
    if kind is UpstreamRejectedRequest:
        said = one_safe_line(complaint.message, private)
        reason = f": {said}" if said else f" without a usable reason{reply}"
        return kind(message + reason, param=_param(complaint))
    error = kind(message, retry_after=retry_after if status in (429, 503, 529) else None)
    if kind is UpstreamError and 400 <= status < 500 and status not in _RETRY_OTHER_4XX:
        error.retryable = False  # the same request would be refused again
    return error


_FIXED: Mapping[type[GatewayError], str] = {
    ContextLengthExceeded: "prompt and answer do not fit the model's context; shorten the prompt or lower max_tokens",
    ContentFiltered: "the provider refused the prompt by its content policy",
    UpstreamQuotaExhausted: "the gateway's account at the provider is used up",
}


def _from_json(value: Mapping[str, Any]) -> UpstreamErrorBody | None:
    error = value.get("error")
    if isinstance(error, dict):
        return _complaint(error)
    if isinstance(error, str) and error:
        return UpstreamErrorBody(error, type=_word(value.get("error_type")))
    if value.get("object") == "error":
        return _complaint(value)
    if "choices" in value or "data" in value:
        return None
    if "detail" in value:
        return UpstreamErrorBody(_detail(value["detail"]))
    return _complaint(value) if isinstance(value.get("message"), str) else None


def _complaint(error: Mapping[str, Any]) -> UpstreamErrorBody:
    message, param = error.get("message"), error.get("param")
    return UpstreamErrorBody(
        message=message if isinstance(message, str) else "",
        code=_word(error.get("code")),
        type=_word(error.get("type")),
        param=param if isinstance(param, str) else None,
    )


def _word(value: object) -> str:
    """A code or a type in lower case; empty for anything but a string or an integer."""
    return str(value)[:MAX_SEARCHED].lower() if isinstance(value, str | int) else ""


def _detail(detail: object) -> str:
    """FastAPI's ``detail``: a string, or a list of findings of which the first is told without its input."""
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        steps, said = detail[0].get("loc"), detail[0].get("msg")
        steps = steps if isinstance(steps, list) else []
        place = ".".join([str(step) for step in steps if isinstance(step, str | int) and step != "body"])
        return f"{place}: {said if isinstance(said, str) else 'invalid'}"
    return detail if isinstance(detail, str) else ""


def _status_of(complaint: UpstreamErrorBody) -> int:
    if re.fullmatch(r"[45]\d\d", complaint.code):
        return int(complaint.code)
    return _WORDS.get(complaint.code) or _WORDS.get(complaint.type) or 500


def _param(complaint: UpstreamErrorBody) -> str | None:
    return complaint.param if complaint.param and re.fullmatch(r"[\w.\[\]]{1,64}", complaint.param) else None


def _clamp(seconds: float) -> float:
    return min(max(seconds, 1.0), 3600.0)
