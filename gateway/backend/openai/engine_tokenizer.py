"""Asks the engine for token counts, to compute the tokens left for the answer. Used if the gateway has no tokenizer.

vLLM and SGLang refuse a request whose prompt and ``max_tokens`` exceed the context, even if the gateway chose
``max_tokens``. Both engines have ``POST /tokenize`` outside ``/v1``, which returns ``count`` and ``max_model_len``.
"""

from __future__ import annotations

import logging
import time

from gateway.backend.http_client.client import HttpClient
from gateway.backend.openai.tokenizer_client import TokenizerClient
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import (
    GatewayError,
    UpstreamConnectTimeout,
    UpstreamDnsError,
    UpstreamInvalidResponse,
    UpstreamModelMissing,
    UpstreamUnreachable,
)

LOG = logging.getLogger("gateway.room")

TIMEOUT = 2.0
"""Seconds that a count may take. After a longer wait the call continues without the count."""
VALID_FOR = 60.0
"""Seconds for which a context length is reused. An engine that does not count is not asked for the same time."""
NEVER_COUNTS = (UpstreamUnreachable, UpstreamConnectTimeout, UpstreamDnsError, UpstreamModelMissing)
"""Errors after which the engine is not asked for ``VALID_FOR`` seconds. Other errors may concern only one prompt."""
MAX_ADDED = 16
"""The maximum number of tokens that an engine adds to a prompt, such as a BOS."""


class EngineTokenizer:
    """The context length of one engine, and the token counts of prompts for this engine."""

    def __init__(self, target: TargetSpec, client: HttpClient, max_model_len: int | None = None) -> None:
        """``max_model_len``: the configured context in tokens. A shorter context of the engine replaces this value."""
        self._target = target
        self._client = TokenizerClient(target, client, TIMEOUT, TIMEOUT)
        self._configured = max_model_len
        self.length = max_model_len
        """The length of the context in tokens; None: not known yet."""
        self._length_valid_until = 0.0
        """Monotonic seconds until which ``length`` is reused."""
        self._silent_until = 0.0
        """Monotonic seconds until which the engine is not asked."""

    async def remaining(self, prompt: str, wanted: int, known: int | None = None) -> int | None:
        """Return the tokens left for the answer, at least 1 and at most ``wanted``; None if the number is not known.

        ``known``: the number of tokens of the prompt, if it is sent as token ids.
        If the engine does not count, the result is still smaller than a configured context, which includes the prompt.
        """
        now = time.monotonic()
        # No token is shorter than a byte, so most prompts are known to fit without being counted.
        most = len(prompt.encode("utf-8", "surrogatepass")) + MAX_ADDED if known is None else known
        if self.length is not None and now < self._length_valid_until and most + wanted <= self.length:
            return wanted
        unknown = None if self._configured is None else max(min(wanted, self._configured - 1), 1)
        if now < self._silent_until:
            return unknown
        try:
            count, length = await self._tokenize(prompt)
        except GatewayError as error:
            if isinstance(error, NEVER_COUNTS) and now >= self._silent_until:
                self._silent_until = now + VALID_FOR
                advice = "set max_model_len and tokenizer of the model"
                LOG.warning("the engine of %s cannot count tokens (%s); %s", self._target.label, error.message, advice)
            return unknown
        self.length = length if self._configured is None else min(length, self._configured)
        self._length_valid_until = now + VALID_FOR
        return max(min(wanted, self.length - (count if known is None else known)), 1)

    async def _tokenize(self, prompt: str) -> tuple[int, int]:
        """Return the number of tokens of the prompt, and the length of the context in tokens."""
        body = await self._client.ask("/tokenize", {"prompt": prompt})
        match body:
            case {"count": int(count), "max_model_len": int(length)} if count >= 0 and length > 0:
                return count, length
        raise UpstreamInvalidResponse("the model's server does not count tokens")
