"""How does an exchange become work for the engine, and its news become events?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.backend.embedded.options import read_options
from gateway.backend.embedded.params import Ask, read_ask
from gateway.backend.embedded.worker_thread import News, Reading, Work
from gateway.backend.engines import EMBEDDED
from gateway.backend.openai.bos import BosRule, bos_rule
from gateway.backend.openai.request_body import refuse_stream_options
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import ContextLengthExceeded, GatewayError, InvalidValue, RequestError
from gateway.core.events import Begun, Event
from gateway.core.exchange import Events, Exchange, RawPrompt
from gateway.stream.batches import Singles

if TYPE_CHECKING:
    from gateway.backend.embedded.engine import Engine

MAX_CHOICES = 4096
"""Prompts times ``n`` of one call."""
LONG = 16_384
"""Characters from which tokenizing leaves the event loop."""


class EmbeddedBackend:
    """A model in this process, behind the same door as any other."""

    capabilities = EMBEDDED

    def __init__(self, target: TargetSpec, engine: Engine) -> None:
        """Raises ``ConfigError`` for options the target cannot have."""
        self.engine = engine
        self._label = target.label
        self._adds_bos = target.adds_bos is not False
        self._options = read_options(target)

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        """Compute the exchange; leaving frees its place in the engine before the next step."""
        # A template that writes its own BOS gets no second one, whatever the client says (design 4.3).
        bos = bos_rule(exchange, "add_special_tokens", self._adds_bos)
        work = await self._work(exchange, bos)
        loop = asyncio.get_running_loop()
        inbox: asyncio.Queue[News] = asyncio.Queue()

        def put(news: Sequence[News]) -> None:
            for item in news:
                inbox.put_nowait(item)

        call = self.engine.submit(work, lambda news: _unit(loop.call_soon_threadsafe(put, news)))
        try:
            yield Singles(self._events(inbox, bos.notices))
        finally:
            self.engine.cancel(call)

    async def _events(self, inbox: asyncio.Queue[News], notices: tuple[str, ...]) -> AsyncIterator[Event]:
        yield Begun(self._label, notices=notices)
        while (news := await inbox.get()) is not None:
            if isinstance(news, GatewayError):
                raise news
            yield news

    async def _work(self, exchange: Exchange, bos: BosRule) -> Work:
        if exchange.endpoint != "completions":
            raise RequestError(
                f"an embedded model completes text; it has no {exchange.endpoint} endpoint of its own"
                + ("; give it a template that renders a prompt" if exchange.endpoint == "chat" else "")
            )
        ask = read_ask({**exchange.params, **bos.fields})
        refuse_stream_options(exchange)
        if not exchange.prompts:
            raise InvalidValue("there is no prompt", param="prompt")
        if not 1 <= exchange.n * len(exchange.prompts) <= MAX_CHOICES:
            raise InvalidValue(f"prompts times n must lie between 1 and {MAX_CHOICES}", param="n")
        if any(not 0 <= token < self.engine.vocabulary_size for token in ask.sampling.logit_bias):
            raise InvalidValue(f"logit_bias names a token beyond the vocabulary of {self.engine.vocabulary_size}",
                               param="logit_bias")  # fmt: skip
        return Work(
            ask=ask,
            readings=await self._read(exchange, ask),
            n=exchange.n,
            stops=exchange.stops,
            stop_token_ids=frozenset(exchange.stop_token_ids),
            token_delay=self._options.token_delay,
        )

    async def _read(self, exchange: Exchange, ask: Ask) -> tuple[Reading, ...]:
        add = self._adds_bos if ask.add_special_tokens is None else ask.add_special_tokens
        if sum(len(prompt) for prompt in exchange.prompts) < LONG:
            return self._readings(exchange.prompts, ask, add)
        return await asyncio.to_thread(self._readings, exchange.prompts, ask, add)

    def _readings(self, prompts: Sequence[RawPrompt], ask: Ask, add: bool) -> tuple[Reading, ...]:
        readings = tuple(self._reading(prompt, add) for prompt in prompts)
        for reading in readings:
            self._check_length(len(reading.tokens), ask.max_tokens)
        return readings

    def _reading(self, prompt: RawPrompt, add: bool) -> Reading:
        if isinstance(prompt, str):
            tokens, unseen = self.engine.encode(prompt, add)
            return Reading(tokens, prompt, unseen)
        if any(not 0 <= token < self.engine.vocabulary_size for token in prompt):
            raise InvalidValue(f"token ids must lie between 0 and {self.engine.vocabulary_size - 1}", param="prompt")
        return Reading(prompt, None)

    def _check_length(self, prompt: int, max_tokens: int) -> None:
        """At least one token must fit behind the prompt; more than fit are not computed ("length")."""
        limit = self.engine.max_model_len
        if not prompt:
            raise InvalidValue("the prompt is empty, and this model's tokenizer adds nothing to it", param="prompt")
        if prompt + min(max_tokens, 1) > limit:
            raise ContextLengthExceeded(
                f"This model's maximum context length is {limit} tokens, however you requested {prompt + max_tokens} "
                f"tokens ({prompt} in your prompt; {max_tokens} for the completion). "
                "Please reduce your prompt; or completion length.",
                param="prompt",
            )


def _unit(_: object) -> None:
    """Deliver has nothing to return."""
