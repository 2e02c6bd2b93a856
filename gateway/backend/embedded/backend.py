"""Backend of a model in this process: an exchange becomes a request to its engine, and the engine's output events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.backend.embedded.request import CallParams, EngineRequest, PromptTokens, read_options, read_params
from gateway.backend.engines import EMBEDDED
from gateway.backend.openai.bos import bos_rule
from gateway.backend.openai.request_body import refuse_stream_options
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import ContextLengthExceeded, GatewayError, InvalidValue, RequestError
from gateway.core.events import Begun, Event
from gateway.core.exchange import Events, Exchange, RawPrompt
from gateway.stream.batches import Singles

if TYPE_CHECKING:
    from gateway.backend.embedded.engine import Engine, Output

MAX_CHOICES = 4096
"""Prompts times ``n`` of one call."""
MIN_THREADED = 16_384
"""Characters from which prompts are tokenized outside the event loop."""


class EmbeddedBackend:
    """``speaks: embedded``."""

    capabilities = EMBEDDED

    def __init__(self, target: TargetSpec, engine: Engine) -> None:
        """Raises ``ConfigError`` for invalid options."""
        self.engine = engine
        self._label = target.label
        self._adds_bos = target.adds_bos is not False
        self._token_delay = read_options(target).token_delay

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        """See ``Backend``; on exit the choices leave the engine before its next step."""
        # A template that writes its own BOS gets no second one, whatever add_special_tokens says.
        bos = bos_rule(exchange, self.capabilities.bos_switch, self._adds_bos)
        request = await self._request(exchange, read_params({**exchange.params, **bos.fields}))
        loop = asyncio.get_running_loop()
        outputs: asyncio.Queue[Output] = asyncio.Queue()

        def put(batch: Sequence[Output]) -> None:
            for output in batch:
                outputs.put_nowait(output)

        running = self.engine.submit(request, lambda batch: loop.call_soon_threadsafe(put, batch))
        try:
            yield Singles(self._events(outputs, bos.notices))
        finally:
            self.engine.cancel(running)

    async def _events(self, outputs: asyncio.Queue[Output], notices: tuple[str, ...]) -> AsyncIterator[Event]:
        yield Begun(self._label, notices=notices)
        while (output := await outputs.get()) is not None:
            if isinstance(output, GatewayError):
                raise output
            yield output

    async def _request(self, exchange: Exchange, params: CallParams) -> EngineRequest:
        if exchange.endpoint != "completions":
            raise RequestError(
                f"an embedded model completes text; it has no {exchange.endpoint} endpoint of its own"
                + ("; give it a template that renders a prompt" if exchange.endpoint == "chat" else "")
            )
        refuse_stream_options(exchange)
        if not exchange.prompts:
            raise InvalidValue("there is no prompt", param="prompt")
        if not 1 <= exchange.n * len(exchange.prompts) <= MAX_CHOICES:
            raise InvalidValue(f"prompts times n must lie between 1 and {MAX_CHOICES}", param="n")
        if any(not 0 <= token < self.engine.vocabulary_size for token in params.sampling.logit_bias):
            raise InvalidValue(f"logit_bias names a token beyond the vocabulary of {self.engine.vocabulary_size}",
                               param="logit_bias")  # fmt: skip
        if sum(len(prompt) for prompt in exchange.prompts) < MIN_THREADED:
            prompts = self._tokenize_all(exchange.prompts, params)
        else:
            prompts = await asyncio.to_thread(self._tokenize_all, exchange.prompts, params)
        return EngineRequest(
            params=params,
            prompts=prompts,
            n=exchange.n,
            stops=exchange.stops,
            stop_token_ids=frozenset(exchange.stop_token_ids),
            token_delay=self._token_delay,
        )

    def _tokenize_all(self, prompts: Sequence[RawPrompt], params: CallParams) -> tuple[PromptTokens, ...]:
        add = self._adds_bos if params.add_special_tokens is None else params.add_special_tokens
        tokenized = tuple(self._tokenize(prompt, add) for prompt in prompts)
        for prompt in tokenized:
            self._check_length(len(prompt.tokens), params.max_tokens)
        return tokenized

    def _tokenize(self, prompt: RawPrompt, add_special_tokens: bool) -> PromptTokens:
        if isinstance(prompt, str):
            tokens, added = self.engine.encode(prompt, add_special_tokens)
            return PromptTokens(tokens, prompt, added)
        if any(not 0 <= token < self.engine.vocabulary_size for token in prompt):
            raise InvalidValue(f"token ids must lie between 0 and {self.engine.vocabulary_size - 1}", param="prompt")
        return PromptTokens(prompt, None)

    def _check_length(self, prompt: int, max_tokens: int) -> None:
        """At least one token must fit behind the prompt; the answer ends with "length" when the context is full."""
        limit = self.engine.max_model_len
        if not prompt:
            raise InvalidValue("the prompt is empty, and this model's tokenizer adds nothing to it", param="prompt")
        if prompt + min(max_tokens, 1) > limit:
            raise ContextLengthExceeded(  # vLLM's words, which clients search for
                f"This model's maximum context length is {limit} tokens, however you requested {prompt + max_tokens} "
                f"tokens ({prompt} in your prompt; {max_tokens} for the completion). "
                "Please reduce your prompt; or completion length.",
                param="prompt",
            )
