"""Rows B01–B23 and C01–C14 of the fault matrix: what each misbehaviour becomes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import SecretStr

from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.completions import CompletionsBackend
from gateway.backend.openai.error_mapping import error_for_status, not_json
from gateway.backend.openai.health import HealthProbe
from gateway.config.sections.tls import tls_context
from tests.backend.ask import chat, complete, exchange, listen, target
from tests.support.certificates import write_certificate
from tests.support.upstream.modes_http import INNER_ADDRESS, SECRET
from tests.support.upstream.reply import TEXT, TOKENS
from tests.support.upstream.server import FaultyUpstream, blackhole_url, refused_url

BEFORE = {  # mode: the error, whether a stream was asked for or not
    # B04–B07: connections
    "early-close": "upstream_disconnected",
    "reset": "upstream_disconnected",
    "garbage": "upstream_invalid_response",
    "bad-status-line": "upstream_invalid_response",
    "partial-headers": "upstream_invalid_response",
    # B08–B10: HTTP
    "huge-headers": "upstream_invalid_response",
    "many-headers": "upstream_invalid_response",
    "obs-fold": "upstream_invalid_response",
    "header-injection": "upstream_invalid_response",
    "cl-and-te": "upstream_invalid_response",
    "redirect": "upstream_redirect",
    "redirect-307": "upstream_redirect",
    # B11–B18: statuses
    "html-502": "upstream_error",
    "500": "upstream_error",
    "504": "upstream_error",
    "503": "upstream_overloaded",
    "529": "upstream_overloaded",
    "418": "upstream_error",
    "409": "upstream_error",
    "429": "upstream_rate_limited",
    "429-retry-after": "upstream_rate_limited",
    "429-quota": "upstream_quota_exhausted",
    "402": "upstream_quota_exhausted",
    "401": "upstream_auth_failed",
    "403": "upstream_auth_failed",
    "404": "upstream_model_missing",
    "404-route": "upstream_model_missing",
    "400": "upstream_rejected_request",
    "400-html": "upstream_rejected_request",
    "400-context": "context_length_exceeded",
    "400-context-numeric": "context_length_exceeded",
    "400-context-llamacpp": "context_length_exceeded",
    "422-tgi-context": "context_length_exceeded",
    "400-filter": "content_filter",
    "quirk-numeric-code": "upstream_rejected_request",
    "quirk-unknown-model": "upstream_model_missing",
    "quirk-detail": "upstream_rejected_request",
    "quirk-detail-list": "upstream_rejected_request",
    "quirk-traceback": "upstream_error",
    "quirk-traceback-400": "upstream_rejected_request",
    "quirk-plain-500": "upstream_error",
    # B19–B23: bodies
    "200-html": "upstream_invalid_response",
    "200-empty": "upstream_invalid_response",
    "200-array": "upstream_invalid_response",
    "200-no-choices": "upstream_invalid_response",
    "200-null-choices": "upstream_invalid_response",
    "200-empty-choices": "upstream_invalid_response",
    "200-truncated": "upstream_invalid_response",
    "204": "upstream_invalid_response",
    "200-error-body": "upstream_overloaded",
    "half-body": "upstream_disconnected",
    "no-finish-json": "upstream_incomplete",
    "gzip": "upstream_invalid_response",
    "gzip-corrupt": "upstream_invalid_response",
    "huge-json": "upstream_response_too_large",
    "deep-json": "upstream_invalid_response",
    "odd-numbers": "upstream_invalid_response",
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("mode", BEFORE)
def test_a_failure_before_the_answer_has_our_name(up: FaultyUpstream, mode: str, stream: bool) -> None:
    heard = complete(up.url(mode), stream)
    assert heard.code == BEFORE[mode]
    assert not heard.deltas
    assert up.control_hits == 0


@pytest.mark.parametrize(
    "mode", ["500", "401", "403", "html-502", "400-html", "quirk-traceback", "quirk-traceback-400"]
)
def test_nothing_private_of_the_upstream_is_passed_on(up: FaultyUpstream, mode: str) -> None:
    error = complete(up.url(mode), False).error
    assert error is not None
    for private in (SECRET, INNER_ADDRESS, "127.0.0.1", "<html", "Traceback", "/opt/engine"):
        assert private not in error.message


REASONS = {  # what a client may read of a refusal
    "400": "temperature must be non-negative, got -1.0.",
    "quirk-numeric-code": "max_tokens must be at least 1, got 0.",
    "quirk-detail": "prompt must be a string.",
    "quirk-detail-list": "prompt: Field required",
    "400-html": "without a usable reason (target m/0 sent status 400 with an HTML page of",
    "400-empty": "without a usable reason (target m/0 sent status 400 with an empty body)",
}


@pytest.mark.parametrize("mode", REASONS)
def test_a_refused_request_says_why(up: FaultyUpstream, mode: str) -> None:
    error = chat(up.url(mode), False).error
    assert error is not None
    assert error.status == 400
    assert REASONS[mode] in error.message


LOGGED = {  # mode: status and reason of the log, a part of the client's message
    "redirect": (302, "redirect to /control/v1/chat/completions", "a redirect (status 302)"),
    "redirect-307": (307, "redirect to /control/v1/chat/completions", "a redirect (status 307)"),
    "html-502": (502, "the server sent no reason (an HTML page of 85 bytes: 502)", "status 502"),
    "200-html": (
        200,
        "the answer is not JSON (an HTML page of 85 bytes: 502)",
        "an HTML page instead of JSON; the operator has to check url",
    ),
    "200-empty": (200, "the answer is not JSON (an empty body)", "a body that is not JSON"),
}


@pytest.mark.parametrize("mode", LOGGED)
def test_the_log_has_the_status_and_what_the_server_sent(up: FaultyUpstream, mode: str) -> None:
    error = chat(up.url(mode), False).error
    assert error is not None
    status, reason, message = LOGGED[mode]
    assert (error.upstream_status, error.reason) == (status, reason)
    assert message in error.message


LOCATIONS = {  # the header of a redirect: what the log shows of it
    "https://models.example/v1/": "https://models.example/v1/",
    "https://me:pass@models.example/v1?token=abc#d": "https://models.example/v1",
    "https://me:p@ss;w@models.example/v1": "https://models.example/v1",
    "http://models.example/login;token=sk-abc123456": "http://models.example/login",
    "http://models.example/sk-abc123456/my-key/v1": "http://models.example/…/…/v1",
    "https://api-models.example/hf-inference/v1": "https://api-models.example/hf-inference/v1",
    "http://node-7.internal:8000/v1": "http://node-7.internal:8000/v1",
    "https://h/v1/completions": "https://h/v1/completions; set url to https://h/v1",
    "https://h/v1/chat/completions?a=b": "https://h/v1/chat/completions; set url to https://h/v1",
    "/v1/chat/completions": "/v1/chat/completions",
    "//[::1/v1": "//[::1/v1",
}


@pytest.mark.parametrize("location", LOCATIONS)
def test_the_location_of_a_redirect_is_logged_without_secrets(location: str) -> None:
    error = error_for_status(301, b"moved", location=location, private=("node-7.internal", "my-key"))
    assert error.reason == f"redirect to {LOCATIONS[location]}"
    assert location not in error.message


PAGES = {  # a body: its first words
    "nginx": (b"<!DOCTYPE html>\n<html>\n<head>\n<title>Welcome to nginx!</title>", "Welcome to nginx!"),
    "a path in the page": (b"<pre>Cannot POST /opt/engine/run</pre>", "Cannot POST …"),
    "markup only": (b"<html><body></body></html>", ""),
    "an open tag": (b"<" * 60_000, ""),
    "text, which may be the model's answer": (b"Dear patient", ""),
}


@pytest.mark.parametrize(("body", "words"), PAGES.values(), ids=PAGES)
def test_the_first_words_of_a_page_are_logged_and_no_other_text(body: bytes, words: str) -> None:
    error = not_json(body)
    assert error.reason.endswith(f" bytes: {words})" if words else " bytes)")
    assert not words or words not in error.message


PRIVATE = {  # what a server writes: what must not reach the client
    "the key": ("key sk-op is invalid for this", "sk-op"),
    "the key, in capitals": ("KEY SK-OP IS INVALID", "SK-OP"),
    "a host name": ("connect to 127.0.0.1 failed", "127.0.0.1"),
    "a host and its port": ("no answer from vllm-worker-3:8000", "vllm-worker"),
    "an internal host": ("no answer from node7.gpu.svc.cluster.local today", "node7"),
    "an AWS key": ("AKIAIOSFODNN7EXAMPLE is not valid", "AKIA"),
    "a Google key": ("API key not valid: AIzaSyA1234567890abcdefghijklmnopqrst", "AIza"),
    "a token": ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc expired", "eyJ"),
    "a key without a prefix": ("denied: 0123456789abcdef0123456789abcdef", "0123456789abcdef"),
}


@pytest.mark.parametrize("mode", ["400-echo", "event-echo"])
@pytest.mark.parametrize("case", PRIVATE)
def test_keys_and_internal_names_in_a_servers_words_are_removed(up: FaultyUpstream, case: str, mode: str) -> None:
    message, private = PRIVATE[case]
    error = complete(up.url(mode, message=message)).error
    assert error is not None
    assert error.code == "upstream_rejected_request"
    assert "…" in error.message
    assert private not in error.message


def test_a_configured_key_of_any_form_is_removed(up: FaultyUpstream) -> None:
    heard = complete(up.url("400-echo", message="no: hunter2hunter2"), spec={"key": SecretStr("hunter2hunter2")})
    assert heard.error is not None
    assert heard.error.message.endswith("no: …")


def test_a_refused_connection_is_unreachable() -> None:
    heard = complete(refused_url())
    assert heard.code == "upstream_unreachable"
    assert heard.error is not None
    assert "127.0.0.1" not in heard.error.message


def test_a_silent_connect_times_out() -> None:
    with blackhole_url() as url:
        assert complete(url, connect_timeout=0.3).code == "upstream_connect_timeout"


def test_an_unknown_host_is_a_dns_error() -> None:
    assert complete("http://nosuch.invalid/v1").code == "upstream_dns_error"


PLAIN = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/%b\r\ncontent-length: %d\r\n\r\n%b"
NGINX = b"<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>"
GO = b"Client sent an HTTP request to an HTTPS server.\n"

SCHEMES = {  # the scheme of url, and the server's reply: the code, and a part of the log's reason
    "https to a plain server": (
        "https",
        PLAIN % (b"plain", 0, b""),
        "upstream_unreachable",
        "use http:// instead of https://",
    ),
    "http to a TLS server": (
        "http",
        b"\x15\x03\x01\x00\x02\x02F",
        "upstream_unreachable",
        "use https:// instead of http://",
    ),
    "http to nginx": (
        "http",
        PLAIN % (b"html", len(NGINX), NGINX),
        "upstream_unreachable",
        "the server sent no reason (an HTML page",
    ),
    "http to a server in Go": ("http", PLAIN % (b"plain", len(GO), GO), "upstream_unreachable", "an HTTPS server."),
    "http to a server that closes": (
        "http",
        b"",
        "upstream_disconnected",
        "if the server expects TLS, use https:// in url",
    ),
}


@pytest.mark.parametrize(("scheme", "reply", "code", "reason"), SCHEMES.values(), ids=SCHEMES)
async def test_the_wrong_scheme_is_named(scheme: str, reply: bytes, code: str, reason: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(reply)
        writer.close()

    client = HttpClient()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        backend = CompletionsBackend(target(f"{scheme}://127.0.0.1:{port}/v1"), client, connect_timeout=30.0)
        error = (await listen(backend, exchange())).error
        await client.aclose()
    assert error is not None
    assert (error.code, reason in (error.reason or error.message)) == (code, True), (error.message, error.reason)
    if code == "upstream_unreachable":
        assert "http:// instead of https://" in error.message or "https:// instead of http://" in error.message


async def test_a_target_with_an_unknown_certificate_gets_no_request(tmp_path: Path) -> None:
    write_certificate(tmp_path, "ec")
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1))
        writer.close()

    client, tls = HttpClient(), tls_context(tmp_path / "server.crt", tmp_path / "server.key")
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        port = server.sockets[0].getsockname()[1]
        backend = CompletionsBackend(target(f"https://localhost:{port}/v1"), client, connect_timeout=30.0)
        error = (await listen(backend, exchange())).error
        await client.aclose()
    assert error is not None
    assert (error.code, b"".join(received)) == ("upstream_unreachable", b"")
    assert "certificate" in error.message


def test_a_context_overflow_has_the_engines_own_numbers(up: FaultyUpstream) -> None:
    error = complete(up.url("400-context")).error
    assert error is not None
    assert error.message.endswith(
        "This model's maximum context length is 512 tokens. However, you requested 600 tokens."
    )


def test_an_unknown_4xx_is_not_retried(up: FaultyUpstream) -> None:
    errors = {mode: complete(up.url(mode)).error for mode in ("418", "409")}
    assert {mode: error.retryable for mode, error in errors.items() if error} == {"418": False, "409": True}


RETRY_AFTER = {"7": 7.0, "0.2": 1.0, "-5": 1.0, "99999999": 3600.0, "soon": None, "Wed, 21 Oct 2015 07:28:00 GMT": 1.0}


@pytest.mark.parametrize("value", RETRY_AFTER)
def test_retry_after_is_understood_and_bounded(up: FaultyUpstream, value: str) -> None:
    error = complete(up.url("429-retry-after", value=value)).error
    assert error is not None
    assert error.retry_after == RETRY_AFTER[value]


MIDSTREAM = {  # mode: (how much text comes first, the error)
    "drop-midstream": (TOKENS[:2], "upstream_disconnected"),  # C01
    "reset-midstream": (TOKENS[:2], "upstream_disconnected"),  # C02
    "flaky-midstream": (TOKENS[:2], "upstream_disconnected"),  # C03
    "no-finish": (TOKENS, "upstream_incomplete"),  # C05
    "eof-no-finish": (TOKENS, "upstream_incomplete"),
    "quirk-cut-stream": (TOKENS[:2], "upstream_incomplete"),
    "done-only": ((), "upstream_incomplete"),  # C06
    "empty-stream": ((), "upstream_incomplete"),
    "error-midstream": (TOKENS[:2], "upstream_error"),  # C08
    "error-event": (TOKENS[:2], "upstream_error"),
    "flaky-first-chunk": ((), "upstream_overloaded"),  # B20
    "malformed-sse": (TOKENS[:2], "upstream_invalid_stream"),  # C09
    "not-a-chunk": (TOKENS[:2], "upstream_invalid_stream"),
    "invalid-utf8": (("a",), "upstream_invalid_stream"),  # C14
    "huge-line": ((), "upstream_invalid_stream"),  # C26
}


@pytest.mark.parametrize("form", [complete, chat], ids=["completions", "chat"])
@pytest.mark.parametrize("mode", MIDSTREAM)
def test_a_broken_stream_gives_its_text_and_then_the_error(up: FaultyUpstream, mode: str, form: object) -> None:
    said, code = MIDSTREAM[mode]
    heard = form(up.url(mode, run=form.__name__))  # type: ignore[operator, attr-defined]
    assert (heard.text(), heard.code) == ("".join(said), code)
    assert not heard.finishes
    assert "10.11.12.13" not in heard.error.message


WHOLE = [  # C04, C07, C10–C12, B21, B26, and engines' habits: the same text as from a well-behaved server
    "ok", "no-done", "data-after-done", "late-close", "comments", "crlf-sse", "cr-sse", "no-space", "multi-line-data",
    "bom", "one-byte-writes", "one-write", "no-final-blank-line", "split-utf8", "unknown-field", "wrong-content-type",
    "wrong-mode", "interim-flood", "http10", "cl-too-short", "quirk-no-done", "quirk-no-usage",
    "quirk-stop-reason", "dup-finish", "usage-cumulative", "usage-bad", "slow-ttfb", "pause-resume", "quirk-list-500",
]  # fmt: skip


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("form", [complete, chat], ids=["completions", "chat"])
@pytest.mark.parametrize("mode", WHOLE)
def test_an_odd_but_whole_answer_is_read_exactly(up: FaultyUpstream, mode: str, form: object, stream: bool) -> None:
    heard = form(up.url(mode), stream)  # type: ignore[operator]
    assert heard.error is None
    assert heard.text() == TEXT
    assert heard.finishes == {0: "stop"}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
def test_a_surrogate_pair_is_joined_and_a_lone_one_replaced(up: FaultyUpstream, stream: bool) -> None:
    assert complete(up.url("split-surrogate"), stream).text() == "a😀b"
    assert complete(up.url("lone-surrogate"), stream).text() == "a\ufffdb"
    assert complete(up.url("nul"), stream).text() == "a\0b"


def test_a_smuggled_reply_never_reaches_the_next_call(up: FaultyUpstream) -> None:
    assert ask_on_one_client(up, "cl-too-short", "ok") == [TEXT, TEXT]


def test_data_after_done_never_reaches_the_next_call(up: FaultyUpstream) -> None:
    assert ask_on_one_client(up, "data-after-done", "ok") == [TEXT, TEXT]


def ask_on_one_client(up: FaultyUpstream, *modes: str) -> list[str]:
    async def run() -> list[str]:
        client = HttpClient()
        texts = []
        for mode in modes:
            backend = CompletionsBackend(target(up.url(mode)), client)
            texts.append((await listen(backend, exchange(stream=mode != "cl-too-short"))).text())
        await client.aclose()
        return texts

    return asyncio.run(run())


HINT = "; check delivery.health_check.path in policy ticks"


@pytest.mark.parametrize(("mode", "hint"), [("503", ""), ("404", HINT)])
async def test_a_failed_health_check_names_the_path_that_was_sent(up: FaultyUpstream, mode: str, hint: str) -> None:
    client = HttpClient()
    probe = HealthProbe(target(up.url(mode)), client, "/health", timeout=30.0, policy="ticks")
    reason = await probe.check()
    await client.aclose()
    assert reason == f"GET /{mode}/health was answered with status {mode}{hint}"
