"""How many tokens does a prompt leave for its answer? Asked of the engine, where no tokenizer here counts.

vLLM and SGLang refuse a request whose prompt and ``max_tokens`` exceed the context, also where the gateway chose that
limit. Both have ``POST /tokenize`` beside ``/v1``, which answers with ``count`` and ``max_model_len``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from gateway.backend.http_client.client import H1Target, HttpClient
from gateway.backend.openai.backend import serialise
from gateway.backend.openai.response_body import parse_json
from gateway.backend.openai.upstream_request import read_whole
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import (
    GatewayError,
    UpstreamConnectTimeout,
    UpstreamDisconnected,
    UpstreamDnsError,
    UpstreamInvalidResponse,
    UpstreamModelMissing,
    UpstreamUnreachable,
)

LOG = logging.getLogger("gateway.room")

TIMEOUT = 2.0
"""Seconds that an answer may take; then the call goes on without it."""
FRESH = 60.0
"""Seconds for which a length is believed, and an engine that did not answer is not asked again."""
MISSING = frozenset({404, 405, 501})
"""Statuses of servers that have no such endpoint."""
NEVER_COUNTS = (UpstreamUnreachable, UpstreamConnectTimeout, UpstreamDnsError, UpstreamModelMissing)
"""After these the engine is not asked for ``FRESH`` seconds; any other failure may be that of one prompt."""
SPECIAL = 16
"""Tokens that may be added to a prompt, such as a BOS."""


class EngineTokenizer:
    """The room in one engine's context."""

    def __init__(self, target: TargetSpec, client: HttpClient, length: int | None = None) -> None:
        """``length``: the context in tokens as configured; the engine's own counts if it is shorter."""
        self._target = target
        self._client = client
        self._configured = length
        self._way: H1Target | None = None
        self.length = length
        """The context in tokens; None: not known yet."""
        self._asked = 0.0
        """Monotonic seconds until which ``length`` is believed."""
        self._silent = 0.0
        """Monotonic seconds until which the engine is not asked."""

    async def left(self, prompt: str, wanted: int) -> int | None:
        """Tokens left for the answer, at most ``wanted`` and at least 1; None: not known."""
        now = time.monotonic()
        # No token is shorter than a byte, so most prompts are known to fit without being counted.
        size = len(prompt.encode("utf-8", "surrogatepass")) + SPECIAL
        if self.length is not None and now < self._asked and size + wanted <= self.length:
            return wanted
        if now < self._silent:
            return None
        try:
            async with asyncio.timeout(TIMEOUT):
                count, length = await self._ask(prompt)
        except (GatewayError, TimeoutError) as error:
            if isinstance(error, NEVER_COUNTS) and now >= self._silent:
                self._silent = now + FRESH
                LOG.warning(
                    "%s does not say how many tokens fit (%s); set max_model_len and tokenizer of the model",
                    self._target.label,
                    type(error).__name__,
                )
            return None
        self.length = length if self._configured is None else min(length, self._configured)
        self._asked = now + FRESH
        return max(min(wanted, self.length - count), 1)

    async def _ask(self, prompt: str) -> tuple[int, int]:
        """The tokens of the prompt, and those of the context."""
        if self._way is None:
            headers = {"content-type": "application/json", "accept": "application/json", "user-agent": "meta-gateway"}
            if self._target.key is not None:
                headers["authorization"] = f"Bearer {self._target.key.reveal()}"
            root = self._target.url.rstrip("/").removesuffix("/v1")
            self._way = self._client.target(f"{root}/tokenize", headers, TIMEOUT)
        content = serialise({"model": self._target.model, "prompt": prompt})
        try:
            answer = await self._way.post(content)
        except UpstreamDisconnected as error:
            if not error.stale:
                raise
            answer = await self._way.post(content)  # the pooled connection had been closed; this one is new
        try:
            if answer.status in MISSING:
                raise UpstreamModelMissing("the model's server has no /tokenize")
            body: Any = parse_json(await read_whole(answer)) if answer.status == 200 else None
        finally:
            answer.leave()
        if isinstance(body, dict):
            count, length = body.get("count"), body.get("max_model_len")
            if type(count) is int and type(length) is int and count >= 0 and length > 0:
                return count, length
        raise UpstreamInvalidResponse("the model's server does not count tokens")
