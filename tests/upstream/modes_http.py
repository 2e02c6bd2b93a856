"""Modes that misbehave below or around the answer: sockets, HTTP, statuses, whole bodies."""

from __future__ import annotations

import asyncio
import gzip
import json
import uuid
from collections.abc import Awaitable, Callable

from tests.upstream.modes_stream import play, say_ok
from tests.upstream.talk import TEXT, TOKENS, Talk

Mode = Callable[[Talk], Awaitable[None]]

MODES: dict[str, Mode] = {}

SECRET = "sk-upstream-secret-abcd1234"
"""Stands in error bodies; must never reach a client."""
INNER_ADDRESS = "10.11.12.13"


def mode(name: str) -> Callable[[Mode], Mode]:
    def add(function: Mode) -> Mode:
        MODES[name] = function
        return function

    return add


# ---------------------------------------------------------------- connections (B04–B07)


@mode("hang-headers")
async def hang_headers(talk: Talk) -> None:
    await talk.hang()


@mode("early-close")
async def early_close(talk: Talk) -> None:
    talk.keep_alive = False


@mode("reset")
async def reset(talk: Talk) -> None:
    await talk.reset()


@mode("garbage")
async def garbage(talk: Talk) -> None:
    await talk.raw(b"\x16\x03\x01 this is not HTTP at all\r\n\r\n")
    talk.keep_alive = False


@mode("bad-status-line")
async def bad_status_line(talk: Talk) -> None:
    await talk.raw(b"HTTP/9.9 twohundred OK\r\ncontent-length: 2\r\n\r\n{}")
    talk.keep_alive = False


@mode("partial-headers")
async def partial_headers(talk: Talk) -> None:
    await talk.raw(b"HTTP/1.1 200 OK\r\ncontent-type: appl")
    await talk.drop()


@mode("dribble-headers")
async def dribble_headers(talk: Talk) -> None:
    for byte in b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + b"x-a: b\r\n" * 1000:
        await talk.raw(bytes([byte]))
        await asyncio.sleep(talk.heard.number("ms", 200) / 1000)


@mode("stale")
async def stale(talk: Talk) -> None:
    """Answers the first request of a connection, and closes the connection on the second."""
    if talk.heard.position:
        talk.keep_alive = False
    else:
        await say_ok(talk)


@mode("stale-reset")
async def stale_reset(talk: Talk) -> None:
    if talk.heard.position:
        await talk.reset()
    else:
        await say_ok(talk)


@mode("works-and-closes")
async def works_and_closes(talk: Talk) -> None:
    """Answers the first request of a connection, works on the second for ``ms``, then closes without an answer."""
    if talk.heard.position:
        await asyncio.sleep(talk.heard.number("ms", 400) / 1000)
        await talk.drop()
    else:
        await say_ok(talk)


# ---------------------------------------------------------------- HTTP (B08–B10, B26)


@mode("huge-headers")
async def huge_headers(talk: Talk) -> None:
    await talk.json(talk.whole([TEXT]), "200 OK", "x-huge: " + "h" * 512 * 1024)


@mode("many-headers")
async def many_headers(talk: Talk) -> None:
    await talk.json(talk.whole([TEXT]), "200 OK", *(f"x-h{number}: 1" for number in range(5000)))


@mode("header-injection")
async def header_injection(talk: Talk) -> None:
    """A bare CR inside a header, which some parsers take for a line end."""
    await talk.json(talk.whole([TEXT]), "200 OK", "x-a: b\rset-cookie: evil=1")


@mode("obs-fold")
async def obs_fold(talk: Talk) -> None:
    await talk.json(talk.whole([TEXT]), "200 OK", "x-a: b\r\n folded")


@mode("cl-and-te")
async def cl_and_te(talk: Talk) -> None:
    body = json.dumps(talk.whole([TEXT])).encode()
    await talk.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n")
    await talk.raw(b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))


@mode("cl-too-short")
async def cl_too_short(talk: Talk) -> None:
    """A right answer, and behind it a second one that nobody asked for."""
    body = json.dumps(talk.whole([TEXT], usage=talk.usage())).encode()
    smuggled = json.dumps(talk.whole(["SMUGGLE"])).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
    await talk.raw(head % (len(body), body) + head % (len(smuggled), smuggled))


@mode("redirect")
async def redirect(talk: Talk) -> None:
    await talk.body(b"", "302 Found", "text/plain", "location: /control/v1/chat/completions")


@mode("redirect-307")
async def redirect_307(talk: Talk) -> None:
    await talk.body(b"", "307 Temporary Redirect", "text/plain", "location: /control/v1/chat/completions")


@mode("interim-flood")
async def interim_flood(talk: Talk) -> None:
    await talk.raw(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 50)
    await say_ok(talk)


@mode("http10")
async def http10(talk: Talk) -> None:
    """No framing at all: the close ends the body."""
    await talk.raw(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n")
    await talk.raw(json.dumps(talk.whole([TEXT], usage=talk.usage())).encode())
    await talk.drop()


# ---------------------------------------------------------------- statuses (B11–B18)

_HTML = f"<html><head><title>502</title></head><body>nginx at {INNER_ADDRESS} says no</body></html>".encode()


@mode("html-502")
async def html_502(talk: Talk) -> None:
    await talk.body(_HTML, "502 Bad Gateway", "text/html")


def _error_mode(name: str, status: str, message: str, *headers: str, **fields: object) -> None:
    async def reply(talk: Talk) -> None:
        await talk.error(status, message, *headers, **fields)

    MODES[name] = reply


for _status in ("418 I'm a teapot", "500 Internal Server Error", "503 Service Unavailable", "504 Gateway Timeout",
                "529 Overloaded", "409 Conflict", "425 Too Early"):  # fmt: skip
    _error_mode(_status[:3], _status, f"engine at {INNER_ADDRESS} failed with key {SECRET}")

_error_mode("401", "401 Unauthorized", f"Incorrect API key provided: {SECRET}", code="invalid_api_key")
_error_mode("403", "403 Forbidden", f"key {SECRET} may not do this")
_error_mode("402", "402 Payment Required", "your balance is empty")
_error_mode("404", "404 Not Found", "The model `tiny` does not exist.", type="NotFoundError", code="model_not_found")
_error_mode("404-route", "404 Not Found", "Not Found")
_error_mode("429", "429 Too Many Requests", "slow down", code="rate_limit_exceeded")
_error_mode("429-quota", "429 Too Many Requests", "You exceeded your current quota", type="insufficient_quota",
            code="insufficient_quota")  # fmt: skip
_error_mode("400", "400 Bad Request", "temperature must be non-negative, got -1.0.", type="BadRequestError")
_error_mode("400-context", "400 Bad Request", "This model's maximum context length is 512 tokens. However, you "
            "requested 600 tokens.", type="invalid_request_error", param="messages",
            code="context_length_exceeded")  # fmt: skip
_error_mode("400-context-numeric", "400 Bad Request", "This model's maximum context length is 512 tokens. However, "
            "your request has 600 input tokens.", type="BadRequestError", code=400)  # fmt: skip
_error_mode("400-context-llamacpp", "400 Bad Request", "the request exceeds the available context size, try increasing "
            "it", type="exceed_context_size_error", code=400)  # fmt: skip
_error_mode("400-filter", "400 Bad Request", "The response was filtered due to the prompt", code="content_filter")


@mode("422-tgi-context")
async def tgi_context(talk: Talk) -> None:
    message = "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 512. Given: 500 and 100"
    await talk.json({"error": message, "error_type": "validation"}, "422 Unprocessable Entity")


@mode("400-empty")
async def empty_400(talk: Talk) -> None:
    await talk.body(b"", "400 Bad Request", "text/plain")


@mode("400-echo")
async def echo_400(talk: Talk) -> None:
    """A server that quotes its own configuration and the request in its refusal."""
    await talk.error("400 Bad Request", talk.heard.options["said"])


@mode("event-echo")
async def echo_event(talk: Talk) -> None:
    """The same, as an event in a stream that has begun."""
    await talk.stream_head()
    await talk.tokens(TOKENS[:1])
    error = {"message": talk.heard.options["said"], "type": "invalid_request_error"}
    await talk.data(b"event: error\ndata: " + json.dumps({"error": error}).encode() + b"\n\n")
    await talk.end()


@mode("uuid-only")
async def uuid_only(talk: Talk) -> None:
    """llama-cpp-python's server: any ``x-request-id`` but a UUID is a 400 with an empty body."""
    try:
        uuid.UUID(talk.heard.headers["x-request-id"])
    except ValueError:
        await talk.body(b"", "400 Bad Request", "text/plain")
    else:
        await say_ok(talk)


@mode("400-html")
async def html_400(talk: Talk) -> None:
    await talk.body(_HTML, "400 Bad Request", "text/html")


@mode("429-retry-after")
async def retry_after_429(talk: Talk) -> None:
    await talk.error("429 Too Many Requests", "slow down", f"retry-after: {talk.heard.options.get('value', '1')}")


@mode("503-retry-after")
async def retry_after_503(talk: Talk) -> None:
    await talk.error("503 Service Unavailable", "busy", f"retry-after: {talk.heard.options.get('s', '1')}")


@mode("flaky")
async def flaky(talk: Talk) -> None:
    """Fails ``fail`` times, then answers."""
    if talk.heard.earlier < talk.heard.number("fail", 1):
        await talk.error("500 Internal Server Error", "not yet")
    else:
        await say_ok(talk)


# ---------------------------------------------------------------- 200 with something else (B19–B23)


def _body_mode(name: str, body: bytes, content_type: str = "application/json", status: str = "200 OK") -> None:
    async def reply(talk: Talk) -> None:
        await talk.body(body, status, content_type)

    MODES[name] = reply


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
async def no_content(talk: Talk) -> None:
    await talk.raw(b"HTTP/1.1 204 No Content\r\n\r\n")


@mode("wrong-content-type")
async def wrong_content_type(talk: Talk) -> None:
    """The right body, called something else."""
    if talk.heard.stream:
        await talk.head("200 OK", "application/json")
        await play(talk, TOKENS)
    else:
        await talk.body(json.dumps(talk.whole([TEXT], usage=talk.usage())).encode(), "200 OK", "text/plain")


@mode("wrong-mode")
async def wrong_mode(talk: Talk) -> None:
    """A stream when JSON was asked for, and JSON when a stream was."""
    if talk.heard.stream:
        await talk.json(talk.whole([TEXT], usage=talk.usage()))
    else:
        await talk.stream_head()
        await play(talk, TOKENS)


@mode("gzip")
async def gzip_reply(talk: Talk) -> None:
    body = gzip.compress(json.dumps(talk.whole([TEXT])).encode())
    await talk.body(body, "200 OK", "application/json", "content-encoding: gzip")


@mode("huge-json")
async def huge_json(talk: Talk) -> None:
    await talk.json(talk.whole(["x" * 20 * 1024 * 1024]))


@mode("odd-numbers")
async def odd_numbers(talk: Talk) -> None:
    await talk.body(b'{"choices": [{"index": 0, "text": "a", "finish_reason": "stop", "x": NaN}]}')


@mode("half-body")
async def half_body(talk: Talk) -> None:
    """The length promises more than comes."""
    body = json.dumps(talk.whole([TEXT])).encode()
    await talk.head(length=len(body) + 100)
    await talk.data(body)
    await talk.drop()


@mode("no-finish-json")
async def no_finish_json(talk: Talk) -> None:
    await talk.json(talk.whole([TEXT], finish=None))


@mode("hang-body")
async def hang_body(talk: Talk) -> None:
    await talk.head(length=1000)
    await talk.data(b'{"id": ')
    await talk.hang()
