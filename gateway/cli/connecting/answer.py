"""Sends requests to a running gateway: a question, whose answer is written while it arrives, or a GET request."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.backend.http_client.client import HttpClient, json_headers, server_root
from gateway.backend.http_client.connection import Connection
from gateway.backend.openai.upstream_request import read_body
from gateway.cli.call_options import KEY_HINT
from gateway.cli.connecting.engine import CONNECT_SECONDS
from gateway.cli.options import CommandError
from gateway.core.errors import InvalidApiKey, UpstreamError
from gateway.stream.sse import SseParser

FAILED = 1
"""The exit code if the gateway cannot be reached, or answers with an error."""


@dataclass(slots=True)
class StreamedAnswer:
    """Facts about an answer, without its text. Times are seconds since the request was sent."""

    headers: Mapping[str, str]
    first: float | None = None
    """Time of the first text or reasoning; None if neither arrived."""
    whole: float = 0.0
    """Time of the end of the answer."""
    usage: Mapping[str, int] | None = None
    finish_reason: str = ""


async def ask(
    url: str, key: str | None, body: Mapping[str, Any], write: Callable[[str], None], think: Callable[[str], None]
) -> StreamedAnswer:
    """Ask for a streamed answer, and call ``write`` with each piece of text and ``think`` with each piece of reasoning.

    ``url``: the address of the gateway, with or without ``/v1``. Raises ``CommandError`` if there is no whole answer.
    """
    sent = time.monotonic()
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    async with _response(url, "POST", "/v1/chat/completions", key, orjson.dumps(streamed)) as http:
        return await _read(http, sent, write, think)


async def get_json(url: str, path: str, key: str | None) -> Any:
    """Return the JSON answer to a GET request. ``url``: as for ``ask``. Raises ``CommandError`` without an answer."""
    async with _response(url, "GET", path, key, b"") as http:
        body = await read_body(http)
    try:
        return orjson.loads(body)
    except ValueError:
        raise CommandError(_error(body), FAILED) from None


@asynccontextmanager
async def _response(url: str, method: str, path: str, key: str | None, body: bytes) -> AsyncIterator[Connection]:
    """Send a request, and return the connection from which the answer with status 200 can be read."""
    root, client = server_root(url), HttpClient()
    try:
        endpoint = client.endpoint(root + path, json_headers(key), CONNECT_SECONDS, method=method)
        http = await endpoint.post(body)
    except UpstreamError as error:
        if error.reason:
            reason = error.reason.removeprefix(f"{error.message}: ")
            way = "give the name in the certificate with --url, or the authority that signed it in SSL_CERT_FILE"
            raise CommandError(f"the TLS certificate at {root} is not accepted: {reason}; {way}", FAILED) from None
        why = f" ({error.message})" if root.startswith("https:") else ""
        start = "start a gateway with gateway serve or gateway demo, or give another address with --url"
        raise CommandError(f"no gateway answers at {root}{why}; {start}", FAILED) from None
    try:
        if http.status != 200:
            raise CommandError(_error(await read_body(http)), FAILED)
        yield http
    except UpstreamError as error:
        raise CommandError(f"the connection to the gateway failed ({error.code})", FAILED) from None
    finally:
        http.release()
        await client.aclose()


async def _read(
    http: Connection, sent: float, write: Callable[[str], None], think: Callable[[str], None]
) -> StreamedAnswer:
    answer, events = StreamedAnswer(dict(http.headers())), SseParser()
    while piece := await http.read():
        for _, data in events.feed(piece):
            if data == b"[DONE]":
                continue
            chunk = orjson.loads(data)
            if "error" in chunk:
                raise CommandError(_error(data), FAILED)
            answer.usage = chunk.get("usage") or answer.usage
            for choice in chunk["choices"]:
                delta = choice["delta"]
                text, thought = delta.get("content"), delta.get("reasoning_content")
                if (text or thought) and answer.first is None:
                    answer.first = time.monotonic() - sent
                if thought:
                    think(thought)
                if text:
                    write(text)
                answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
    answer.whole = time.monotonic() - sent
    return answer


def _error(body: bytes) -> str:
    """Return the message of OpenAI's error object, or the first line of a proxy's page."""
    try:
        error = orjson.loads(body)["error"]
        hint = KEY_HINT if error["code"] == InvalidApiKey.code else ""
        return f"{error['code']}: {error['message']}{hint}"
    except (ValueError, KeyError, TypeError):
        return f"the answer is not a gateway's: {body[:200].decode('utf-8', 'replace').partition(chr(10))[0]}"


def summary(answer: StreamedAnswer) -> str:
    """Return one line about an answer: times, numbers of tokens, finish reason, template and target."""
    times = [] if answer.first is None else [f"first text after {answer.first:.2f} s"]
    times.append(f"whole answer after {answer.whole:.2f} s")
    if answer.usage is not None:
        times.append(f"{answer.usage['prompt_tokens']} + {answer.usage['completion_tokens']} tokens")
    times.append(f"finish_reason {answer.finish_reason}")
    used = [
        f"{name} {answer.headers[f'x-gateway-{name}']}"
        for name in ("template", "target")
        if f"x-gateway-{name}" in answer.headers
    ]
    return ", ".join(times + used)
