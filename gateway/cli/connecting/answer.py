"""Sends one question to a running gateway, and writes the answer while it arrives."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.backend.http_client.client import HttpClient, json_headers, server_root
from gateway.backend.http_client.connection import Connection
from gateway.backend.openai.upstream_request import read_body
from gateway.cli.options import CommandError
from gateway.core.errors import UpstreamError
from gateway.stream.sse import SseParser

CONNECT_SECONDS = 5.0
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
    root = server_root(url)
    client = HttpClient()
    sent = time.monotonic()
    try:
        endpoint = client.endpoint(f"{root}/v1/chat/completions", json_headers(key), CONNECT_SECONDS)
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        http = await endpoint.post(orjson.dumps(streamed))
    except UpstreamError:
        start = "start a gateway with gateway serve or gateway demo, or give another address with --url"
        raise CommandError(f"no gateway answers at {root}; {start}", FAILED) from None
    try:
        if http.status != 200:
            raise CommandError(_error(await read_body(http)), FAILED)
        return await _read(http, sent, write, think)
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
        for event in events.feed(piece):
            if event.data == b"[DONE]":
                continue
            chunk = orjson.loads(event.data)
            if "error" in chunk:
                raise CommandError(_error(event.data), FAILED)
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
        return f"{error['code']}: {error['message']}"
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
