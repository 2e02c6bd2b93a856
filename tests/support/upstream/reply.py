"""One parsed request to a test upstream, and helpers that write replies byte by byte."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TOKENS = ("Hel", "lo", ", wör", "ld", "! 1 < 2")
"""The tokens of a correct answer."""
TEXT = "".join(TOKENS)


@dataclass(frozen=True, slots=True)
class Request:
    """One received request."""

    mode: str
    options: Mapping[str, str]
    endpoint: str
    """``completions``, ``chat`` or ``embeddings``."""
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    position: int = 0
    """Number of earlier requests on the same connection."""
    earlier: int = 0
    """Number of earlier requests to the same mode with the same options."""

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def wants_usage(self) -> bool:
        return bool((self.body.get("stream_options") or {}).get("include_usage"))

    @property
    def prompts(self) -> list[Any]:
        """The prompts of a completions request as a list; one dummy for a chat request."""
        prompt = self.body.get("prompt", "")
        return prompt if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else [prompt]

    def number(self, name: str, default: float) -> float:
        return float(self.options.get(name, default))


@dataclass(slots=True)
class Reply:
    """The reply to one request; a mode is a coroutine that gets one of these and writes it."""

    request: Request
    writer: asyncio.StreamWriter
    chunked: bool = False
    keep_alive: bool = field(default=True)

    # ------------------------------------------------------------------ bytes

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(
        self,
        status: str = "200 OK",
        content_type: str = "application/json",
        *extra: str,
        length: int | None = None,
    ) -> None:
        """Status line and headers; chunked unless a length is given."""
        self.chunked = length is None
        framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        lines = [f"HTTP/1.1 {status}", f"content-type: {content_type}", framing, *extra]
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def data(self, data: bytes) -> None:
        """A piece of the body, framed as the head announced."""
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data)

    async def end(self) -> None:
        if self.chunked:
            await self.raw(b"0\r\n\r\n")

    async def body(
        self, body: bytes, status: str = "200 OK", content_type: str = "application/json", *extra: str
    ) -> None:
        """A whole reply."""
        await self.head(status, content_type, *extra, length=len(body))
        await self.data(body)

    async def json(self, value: object, status: str = "200 OK", *extra: str) -> None:
        await self.body(json.dumps(value).encode(), status, "application/json", *extra)

    async def error(self, status: str, message: str, *extra: str, **fields: Any) -> None:
        """OpenAI's error object."""
        shape = {"message": message, "type": "server_error", "param": None, "code": None}
        await self.json({"error": {**shape, **fields}}, status, *extra)

    async def hang(self) -> None:
        await asyncio.Event().wait()

    async def drop(self) -> None:
        """Close the connection before the reply is complete."""
        self.keep_alive = False
        await asyncio.sleep(0.02)
        self.writer.close()

    async def reset(self) -> None:
        """End the connection with RST."""
        self.keep_alive = False
        await asyncio.sleep(0.02)
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    # ------------------------------------------------------------------ completions

    async def stream_head(self) -> None:
        await self.head("200 OK", "text/event-stream")

    def piece(self, text: str | None, index: int = 0, finish: str | None = None, **extra: Any) -> dict[str, Any]:
        """One streamed chunk with one choice."""
        choice: dict[str, Any] = {"index": index, "finish_reason": finish, **extra}
        if self.request.endpoint == "chat":
            choice["delta"] = {} if text is None else {"content": text}
        else:
            choice["text"] = text or ""
        return self.envelope([choice], chunk=True)

    def envelope(self, choices: Sequence[Any], *, chunk: bool = False, **extra: Any) -> dict[str, Any]:
        kind = "text_completion"
        if self.request.endpoint == "chat":
            kind = "chat.completion.chunk" if chunk else "chat.completion"
        model = self.request.body.get("model")
        return {"id": "up-1", "object": kind, "created": 1, "model": model, "choices": list(choices), **extra}

    def whole(self, texts: Sequence[str], finish: str | None = "stop", **extra: Any) -> dict[str, Any]:
        """A non-streaming answer, one choice for each text."""
        choices: list[dict[str, Any]] = []
        for index, text in enumerate(texts):
            answer = (
                {"message": {"role": "assistant", "content": text, "refusal": None}}
                if self.request.endpoint == "chat"
                else {"text": text}
            )
            choices.append({"index": index, **answer, "logprobs": None, "finish_reason": finish})
        return self.envelope(choices, **extra)

    def usage(self, completion: int = len(TOKENS)) -> dict[str, Any]:
        return {"prompt_tokens": 7, "completion_tokens": completion, "total_tokens": 7 + completion}

    async def event(self, value: object) -> None:
        await self.data(b"data: " + json.dumps(value).encode() + b"\n\n")

    async def done(self) -> None:
        await self.data(b"data: [DONE]\n\n")

    async def tokens(self, texts: Sequence[str] = TOKENS, index: int = 0) -> None:
        for text in texts:
            await self.event(self.piece(text, index))

    async def usage_event(self, completion: int = len(TOKENS)) -> None:
        if self.request.wants_usage:
            await self.event(self.envelope([], chunk=True, usage=self.usage(completion)))
