"""The tokenizer endpoints of an engine, outside ``/v1``. vLLM has all three, SGLang has the first two.

POST /tokenize        {prompt | messages, add_special_tokens} → {tokens, count, max_model_len}
POST /detokenize      {tokens} → {prompt}; SGLang: {text}
GET  /tokenizer_info  → the content of ``tokenizer_config.json``; vLLM needs --enable-tokenizer-info-endpoint
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.backend.http_client.client import HttpClient, HttpEndpoint, server_root
from gateway.backend.openai.answer.response_body import parse_json
from gateway.backend.openai.base import open_endpoint
from gateway.backend.openai.error_mapping import MAX_ERROR_BODY, error_for_status
from gateway.backend.openai.request.request_body import serialise
from gateway.backend.openai.upstream_request import read_body, refuse_encoded
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import UpstreamError, UpstreamInvalidResponse, UpstreamModelMissing, UpstreamTimeout


@dataclass(slots=True)
class TokenizerClient:
    """Sends requests to the tokenizer endpoints of one target."""

    target: TargetSpec
    client: HttpClient
    connect_timeout: float
    """Seconds that opening a connection may take."""
    timeout: float = 60.0
    """Seconds that a whole request may take."""

    async def tokenize(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of ``/tokenize``, with checked ``tokens``. Raises ``UpstreamError`` or ``RequestError``."""
        answer = await self.ask("/tokenize", fields)
        ids = answer.get("tokens")
        if not isinstance(ids, list) or not all(type(one) is int for one in ids):
            raise UpstreamInvalidResponse("the model's server sent tokens that are not a list of token ids")
        return answer

    async def detokenize(self, ids: list[int]) -> str:
        """Return the text of token ids. Raises ``UpstreamError`` or ``RequestError``."""
        # SGLang leaves special tokens out by default; vLLM never does, and has no such field.
        options = {"skip_special_tokens": False} if self.target.engine == "sglang" else {}
        answer = await self.ask("/detokenize", {"tokens": ids, **options})
        text = answer.get("prompt", answer.get("text"))
        if not isinstance(text, str):
            raise UpstreamInvalidResponse("the model's server sent no text for the token ids")
        return text

    async def info(self) -> dict[str, Any]:
        """Return the answer of ``/tokenizer_info``. Raises ``UpstreamError`` or ``RequestError``."""
        return await self.ask("/tokenizer_info", None)

    async def ask(self, path: str, fields: Mapping[str, Any] | None) -> dict[str, Any]:
        """Send a request to ``path`` and return the JSON object of the answer.

        ``fields``: the body of a POST without the model; None for a GET.
        """
        url, method = server_root(self.target.url) + path, "GET" if fields is None else "POST"
        endpoint = open_endpoint(self.client, self.target, url, self.connect_timeout, method=method)
        content = b"" if fields is None else serialise({"model": self.target.model, **fields})
        try:
            async with asyncio.timeout(self.timeout):
                answer = await fetch_json(endpoint, content, path, self.target.label)
        except TimeoutError:
            raise UpstreamTimeout(
                f"the model's server did not answer {path} within {self.timeout:g} s (target {self.target.label})"
            ) from None
        except UpstreamError as error:
            error.message += f" (target {self.target.label})"
            raise
        if not isinstance(answer, dict):
            raise UpstreamInvalidResponse(f"the answer of the model's server to {path} is not a JSON object")
        return answer


async def fetch_json(endpoint: HttpEndpoint, content: bytes, path: str, target: str) -> Any:
    """Send a request and return the JSON body of the answer. Errors name ``path`` and ``target``."""
    http = await endpoint.post_idempotent(content)
    try:
        if http.status in (404, 405, 501):
            raise UpstreamModelMissing(f"the model's server has no {path}")
        refuse_encoded(http)
        if http.status != 200:
            body = await read_body(http, MAX_ERROR_BODY)
            private, location = endpoint.private, http.header("location")
            raise error_for_status(
                http.status, body, http.content_type, target=target, private=private, location=location
            )
        return parse_json(await read_body(http), endpoint.private)
    finally:
        http.release()
