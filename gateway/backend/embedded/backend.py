"""Backend of a model in this process. It turns exchanges into engine requests, and the engine's output into events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.backend.embedded.request import PARAMS, EngineRequest, TokenizedPrompt, read_params
from gateway.backend.engines import EMBEDDED
from gateway.backend.openai.request.bos import bos_rule
from gateway.backend.openai.request.constraint import no_constraint
from gateway.backend.openai.request.neutral_values import without_neutral_values
from gateway.backend.openai.request.request_body import refuse_stream_options
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import (
    ConfigError,
    ContextLengthExceeded,
    InvalidValue,
    Problem,
    RequestError,
    UpstreamError,
    as_gateway_error,
)
from gateway.core.exchange import Events, Exchange, RawPrompt
from gateway.stream.batches import IteratorEvents
from metatemplate.errors import LoneSurrogate
from metatemplate.values.events import Begun, Event, Usage

if TYPE_CHECKING:
    from gateway.backend.embedded.engine import EmbeddedEngine, RunningRequest

MAX_CHOICES = 4096
"""The maximum of the number of prompts times ``n`` in one call."""


class EmbeddedBackend:
    """Backend of a target with ``speaks: embedded``."""

    capabilities = EMBEDDED

    def __init__(self, target: TargetSpec, engine: EmbeddedEngine) -> None:
        """Raises ``ConfigError`` for an invalid option ``token_delay``."""
        self.engine = engine
        self._target = target
        self._adds_bos = target.adds_bos is not False
        self._token_delay = target.options.get("token_delay", 0.0)
        if type(self._token_delay) not in (int, float) or not 0 <= self._token_delay <= 60:
            raise ConfigError((Problem(target.label, 0, "options.token_delay", "must be a number from 0 to 60"),))

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        """Submit the exchange to the engine. On exit, the engine drops the call's choices before the next step."""
        exchange, left_out = without_neutral_values(exchange, PARAMS)
        _check(exchange)
        if exchange.answer_format is not None:
            raise no_constraint(self._target)
        # If the template writes the BOS, no second BOS is added, also if add_special_tokens is true.
        bos = bos_rule(exchange, self.capabilities.bos_switch, self._adds_bos)
        running = self.engine.submit(await asyncio.to_thread(self._request, exchange, bos.fields))
        try:
            yield IteratorEvents(self._events(running, bos.notices + left_out))
        finally:
            self.engine.cancel(running)

    async def _events(self, running: RunningRequest, notices: tuple[str, ...]) -> AsyncIterator[Event]:
        yield Begun(self._target.label, notices=notices)
        usage = False
        while not usage:
            output = await running.outputs.get()
            if isinstance(output, UpstreamError):
                raise output
            for event in output:
                yield event
                usage = isinstance(event, Usage)

    def _request(self, exchange: Exchange, bos: Mapping[str, bool]) -> EngineRequest:
        params = read_params({**exchange.params, **bos}, self.engine.vocabulary_size)
        add = self._adds_bos if params.add_special_tokens is None else params.add_special_tokens
        prompts = tuple(self._tokenize(prompt, add, params.max_tokens) for prompt in exchange.prompts)
        return EngineRequest(exchange=exchange, params=params, prompts=prompts, token_delay=self._token_delay)

    def _tokenize(self, prompt: RawPrompt, add_special_tokens: bool, max_tokens: int) -> TokenizedPrompt:
        limit, size = self.engine.max_model_len, self.engine.vocabulary_size
        if isinstance(prompt, str):
            try:
                encoding = self.engine.vocabulary.encode(prompt, add_special_tokens)
            except LoneSurrogate as error:
                raise as_gateway_error(error) from None
            # The mask is 1 for added tokens; added tokens after the prompt do not count.
            added = (*encoding.special_tokens_mask, 0).index(0) if add_special_tokens else 0
            tokens = tuple(encoding.ids)
        elif all(0 <= token < size for token in prompt):
            tokens, added = prompt, 0
        else:
            raise InvalidValue(f"token ids must be from 0 to {size - 1}", param="prompt")
        if not tokens:
            raise InvalidValue("the prompt is empty; send at least one token", param="prompt")
        # At least one token must fit after the prompt; the answer ends with "length" when the context is full.
        if len(tokens) + min(max_tokens, 1) > limit:
            raise ContextLengthExceeded(  # vLLM's wording, which clients search for
                f"This model's maximum context length is {limit} tokens, however you requested "
                f"{len(tokens) + max_tokens} tokens ({len(tokens)} in your prompt; {max_tokens} for the completion). "
                "Please reduce your prompt; or completion length.",
                param="prompt",
            )
        return TokenizedPrompt(tokens, prompt if isinstance(prompt, str) else None, added)


def _check(exchange: Exchange) -> None:
    if exchange.endpoint != "completions":
        template = "the operator must set a template that makes a string"
        other = "use a model whose target has one (speaks: completions, chat or litellm)"
        raise RequestError(
            f"this model's target (speaks: embedded) has no {exchange.endpoint} endpoint; "
            + (template if exchange.endpoint == "chat" else other),
            param="model",
        )
    refuse_stream_options(exchange)
    if not exchange.prompts:
        raise InvalidValue("the request has no prompt; send a string or a list of token ids", param="prompt")
    if exchange.n * len(exchange.prompts) > MAX_CHOICES:
        raise InvalidValue(f"the number of prompts times n must be from 1 to {MAX_CHOICES}", param="n")
