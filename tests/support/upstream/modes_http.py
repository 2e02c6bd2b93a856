"""Modes with faults of sockets, HTTP, statuses and whole bodies."""

from __future__ import annotations

import asyncio
import gzip
import json
import uuid

from tests.support.upstream.modes import MODES, mode
from tests.support.upstream.modes_stream import send_ok, send_stream
from tests.support.upstream.reply import TEXT, TOKENS, Reply

SECRET = "sk-upstream-secret-abcd1234"
"""Part of error bodies; must never reach a client."""
INNER_ADDRESS = "10.11.12.13"


# ---------------------------------------------------------------- connections (B04–B07)


@mode("hang-headers")
async def hang_headers(reply: Reply) -> None:
    await reply.hang()


@mode("early-close")
async def early_close(reply: Reply) -> None:
    reply.keep_alive = False


@mode("reset")
async def reset(reply: Reply) -> None:
    await reply.reset()


@mode("garbage")
async def garbage(reply: Reply) -> None:
    await reply.raw(b"\x16\x03\x01 this is not HTTP at all\r\n\r\n")
    reply.keep_alive = False


@mode("bad-status-line")
async def bad_status_line(reply: Reply) -> None:
    await reply.raw(b"HTTP/9.9 twohundred OK\r\ncontent-length: 2\r\n\r\n{}")
    reply.keep_alive = False


@mode("partial-headers")
async def partial_headers(reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: appl")
    await reply.drop()


@mode("dribble-headers")
async def dribble_headers(reply: Reply) -> None:
    for byte in b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + b"x-a: b\r\n" * 1000:
        await reply.raw(bytes([byte]))
        await asyncio.sleep(reply.request.number("ms", 200) / 1000)


@mode("stale")
async def stale(reply: Reply) -> None:
    """Answers the first request of a connection, and closes the connection at the second."""
    if reply.request.position:
        reply.keep_alive = False
    else:
        await send_ok(reply)


@mode("stale-reset")
async def stale_reset(reply: Reply) -> None:
    if reply.request.position:
        await reply.reset()
    else:
        await send_ok(reply)


@mode("works-and-closes")
async def works_and_closes(reply: Reply) -> None:
    """Answers the first request of a connection; ``ms`` after the second, closes without an answer."""
    if reply.request.position:
        await asyncio.sleep(reply.request.number("ms", 400) / 1000)
        await reply.drop()
    else:
        await send_ok(reply)


# ---------------------------------------------------------------- HTTP (B08–B10, B26)


@mode("huge-headers")
async def huge_headers(reply: Reply) -> None:
    await reply.json(reply.whole([TEXT]), "200 OK", "x-huge: " + "h" * 512 * 1024)


@mode("many-headers")
async def many_headers(reply: Reply) -> None:
    await reply.json(reply.whole([TEXT]), "200 OK", *(f"x-h{number}: 1" for number in range(5000)))


@mode("header-injection")
async def header_injection(reply: Reply) -> None:
    """A bare CR inside a header, which some parsers take for a line end."""
    await reply.json(reply.whole([TEXT]), "200 OK", "x-a: b\rset-cookie: evil=1")


@mode("obs-fold")
async def obs_fold(reply: Reply) -> None:
    await reply.json(reply.whole([TEXT]), "200 OK", "x-a: b\r\n folded")


@mode("cl-and-te")
async def cl_and_te(reply: Reply) -> None:
    body = json.dumps(reply.whole([TEXT])).encode()
    await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n")
    await reply.raw(b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))


@mode("cl-too-short")
async def cl_too_short(reply: Reply) -> None:
    """A correct answer, followed by a second one without a request."""
    body = json.dumps(reply.whole([TEXT], usage=reply.usage())).encode()
    smuggled = json.dumps(reply.whole(["SMUGGLE"])).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
    await reply.raw(head % (len(body), body) + head % (len(smuggled), smuggled))


@mode("redirect")
async def redirect(reply: Reply) -> None:
    await reply.body(b"", "302 Found", "text/plain", "location: /control/v1/chat/completions")


@mode("redirect-307")
async def redirect_307(reply: Reply) -> None:
    await reply.body(b"", "307 Temporary Redirect", "text/plain", "location: /control/v1/chat/completions")


@mode("interim-flood")
async def interim_flood(reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 50)
    await send_ok(reply)


@mode("http10")
async def http10(reply: Reply) -> None:
    """No framing: the close ends the body."""
    await reply.raw(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n")
    await reply.raw(json.dumps(reply.whole([TEXT], usage=reply.usage())).encode())
    await reply.drop()


# ---------------------------------------------------------------- statuses (B11–B18)

_HTML = f"<html><head><title>502</title></head><body>nginx at {INNER_ADDRESS} refused</body></html>".encode()


@mode("html-502")
async def html_502(reply: Reply) -> None:
    await reply.body(_HTML, "502 Bad Gateway", "text/html")


def _error_mode(name: str, status: str, message: str, *headers: str, **fields: object) -> None:
    async def respond(reply: Reply) -> None:
        await reply.error(status, message, *headers, **fields)

    MODES[name] = respond


for _status in (
    "418 I'm a teapot",
    "500 Internal Server Error",
    "503 Service Unavailable",
    "504 Gateway Timeout",
    "529 Overloaded",
    "409 Conflict",
    "425 Too Early",
):
    _error_mode(_status[:3], _status, f"engine at {INNER_ADDRESS} failed with key {SECRET}")

_error_mode(
    "500-memory",
    "500 Internal Server Error",
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB",
    type="InternalServerError",
    code=500,
)
_error_mode("401", "401 Unauthorized", f"Incorrect API key provided: {SECRET}", code="invalid_api_key")
_error_mode("403", "403 Forbidden", f"key {SECRET} may not do this")
_error_mode("402", "402 Payment Required", "your balance is empty")
_error_mode("404", "404 Not Found", "The model `tiny` does not exist.", type="NotFoundError", code="model_not_found")
_error_mode("404-route", "404 Not Found", "Not Found")
_error_mode("429", "429 Too Many Requests", "slow down", code="rate_limit_exceeded")
_error_mode(
    "429-quota",
    "429 Too Many Requests",
    "You exceeded your current quota",
    type="insufficient_quota",
    code="insufficient_quota",
)
_error_mode("400", "400 Bad Request", "temperature must be non-negative, got -1.0.", type="BadRequestError")
_error_mode(
    "400-context",
    "400 Bad Request",
    "This model's maximum context length is 512 tokens. However, you requested 600 tokens.",
    type="invalid_request_error",
    param="messages",
    code="context_length_exceeded",
)
_error_mode(
    "400-context-numeric",
    "400 Bad Request",
    "This model's maximum context length is 512 tokens. However, your request has 600 input tokens.",
    type="BadRequestError",
    code=400,
)
_error_mode(
    "400-context-llamacpp",
    "400 Bad Request",
    "the request exceeds the available context size, try increasing it",
    type="exceed_context_size_error",
    code=400,
)
_error_mode("400-filter", "400 Bad Request", "The response was filtered due to the prompt", code="content_filter")


@mode("422-tgi-context")
async def tgi_context(reply: Reply) -> None:
    message = "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 512. Given: 500 and 100"
    await reply.json({"error": message, "error_type": "validation"}, "422 Unprocessable Entity")


@mode("400-empty")
async def empty_400(reply: Reply) -> None:
    await reply.body(b"", "400 Bad Request", "text/plain")


@mode("400-echo")
async def echo_400(reply: Reply) -> None:
    """A refusal that quotes the option ``message``, for instance the server's configuration."""
    await reply.error("400 Bad Request", reply.request.options["message"])


@mode("400-repeat")
async def repeat_400(reply: Reply) -> None:
    """A refusal that repeats the last message of the request."""
    await reply.error("400 Bad Request", f"bad prompt: {reply.request.body['messages'][-1]['content']}")


@mode("event-echo")
async def echo_event(reply: Reply) -> None:
    """As ``400-echo``, as an event in a stream that has begun."""
    await reply.stream_head()
    await reply.tokens(TOKENS[:1])
    error = {"message": reply.request.options["message"], "type": "invalid_request_error"}
    await reply.data(b"event: error\ndata: " + json.dumps({"error": error}).encode() + b"\n\n")
    await reply.end()


@mode("uuid-only")
async def uuid_only(reply: Reply) -> None:
    """llama-cpp-python's server: any ``x-request-id`` but a UUID is a 400 with an empty body."""
    try:
        uuid.UUID(reply.request.headers["x-request-id"])
    except ValueError:
        await reply.body(b"", "400 Bad Request", "text/plain")
    else:
        await send_ok(reply)


@mode("400-html")
async def html_400(reply: Reply) -> None:
    await reply.body(_HTML, "400 Bad Request", "text/html")


@mode("429-retry-after")
async def retry_after_429(reply: Reply) -> None:
    await reply.error("429 Too Many Requests", "slow down", f"retry-after: {reply.request.options.get('value', '1')}")


@mode("503-retry-after")
async def retry_after_503(reply: Reply) -> None:
    await reply.error("503 Service Unavailable", "busy", f"retry-after: {reply.request.options.get('s', '1')}")


@mode("flaky")
async def flaky(reply: Reply) -> None:
    """Fails ``fail`` times, then answers."""
    if reply.request.earlier < reply.request.number("fail", 1):
        await reply.error("500 Internal Server Error", "not yet")
    else:
        await send_ok(reply)


@mode("fails-at")
async def fails_at(reply: Reply) -> None:
    """Fails if the prompt contains the option ``text``: with status 500, or in the middle of a stream."""
    if reply.request.options["text"] not in str(reply.request.prompts):
        await send_ok(reply)
    elif reply.request.stream:
        await reply.stream_head()
        await reply.tokens(TOKENS[:2])
        await reply.drop()
    else:
        await reply.error("500 Internal Server Error", "tired")


# ---------------------------------------------------------------- 200 with something else (B19–B23)


def _body_mode(name: str, body: bytes, content_type: str = "application/json", status: str = "200 OK") -> None:
    async def respond(reply: Reply) -> None:
        await reply.body(body, status, content_type)

    MODES[name] = respond


_body_mode("200-html", _HTML, "text/html")
_body_mode("200-empty", b"")
_body_mode("200-array", b"[]")
_body_mode("200-no-choices", b'{"id": "up-1", "object": "text_completion", "model": "tiny"}')
_body_mode("200-null-choices", b'{"choices": null}')
_body_mode("200-empty-choices", b'{"choices": []}')
_body_mode("200-truncated", b'{"id": "up-1", "choices": [{"index": 0, "te')
_body_mode(
    "200-error-body",
    b'{"error": {"message": "engine is overloaded", "type": "overloaded_error", "code": "overloaded"}}',
)
_body_mode("deep-json", b'{"choices":' * 3000 + b"1" + b"}" * 3000)
_body_mode("gzip-corrupt", b"\x1f\x8bnot really gzip")


@mode("204")
async def no_content(reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 204 No Content\r\n\r\n")


@mode("wrong-content-type")
async def wrong_content_type(reply: Reply) -> None:
    """The correct body with the wrong content type."""
    if reply.request.stream:
        await reply.head("200 OK", "application/json")
        await send_stream(reply, TOKENS)
    else:
        await reply.body(json.dumps(reply.whole([TEXT], usage=reply.usage())).encode(), "200 OK", "text/plain")


@mode("wrong-mode")
async def wrong_mode(reply: Reply) -> None:
    """A stream when the request has no ``stream``, and JSON when it has."""
    if reply.request.stream:
        await reply.json(reply.whole([TEXT], usage=reply.usage()))
    else:
        await reply.stream_head()
        await send_stream(reply, TOKENS)


@mode("gzip")
async def gzip_reply(reply: Reply) -> None:
    body = gzip.compress(json.dumps(reply.whole([TEXT])).encode())
    await reply.body(body, "200 OK", "application/json", "content-encoding: gzip")


@mode("huge-json")
async def huge_json(reply: Reply) -> None:
    await reply.json(reply.whole(["x" * 20 * 1024 * 1024]))


@mode("odd-numbers")
async def odd_numbers(reply: Reply) -> None:
    await reply.body(b'{"choices": [{"index": 0, "text": "a", "finish_reason": "stop", "x": NaN}]}')


@mode("half-body")
async def half_body(reply: Reply) -> None:
    """The content-length is larger than the body."""
    body = json.dumps(reply.whole([TEXT])).encode()
    await reply.head(length=len(body) + 100)
    await reply.data(body)
    await reply.drop()


@mode("no-finish-json")
async def no_finish_json(reply: Reply) -> None:
    await reply.json(reply.whole([TEXT], finish=None))


@mode("hang-body")
async def hang_body(reply: Reply) -> None:
    await reply.head(length=1000)
    await reply.data(b'{"id": ')
    await reply.hang()
