"""Backend for providers whose API is not OpenAI's, through LiteLLM's SDK.

LiteLLM retries, turns broken streams into successes, leaves upstream requests open and invents finish reasons
(``docs/spec/reliability.md`` 0, findings 2 to 5). So retries are off, every stream is closed, exceptions are mapped by
the gateway's own tables, and an empty answer is an error.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Set
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from gateway.backend.engines import CHAT_PARAMS, EMBEDDINGS_PARAMS, LITELLM, OPENAI_STOPS
from gateway.backend.litellm.dropped import DROPPED_HINTS
from gateway.backend.litellm.errors import gateway_error
from gateway.backend.litellm.sdk import load, provider_of, switch_logging_off
from gateway.backend.openai.answer.events import CHAT_FORMAT, ChunkReader, read_usage
from gateway.backend.openai.request.neutral_values import without_neutral_values
from gateway.backend.openai.request.request_body import refuse_stream_options, stops_notice
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import UnsupportedParameter, UpstreamIncomplete, UpstreamInvalidResponse
from gateway.core.exchange import Events, Exchange
from gateway.stream.batches import IteratorEvents
from metatemplate.values.events import Begun, Delta, Document, Event, Finish, Usage
from metatemplate.values.json_values import REMOVED, changed

TIMEOUT = 3600.0
"""The timeout given to LiteLLM, in seconds. Deadlines are set by the layers in ``policy/deliver``."""
CLOSE_TIMEOUT = 2.0
"""Seconds that closing a stream may take."""

A_PROVIDER = re.compile(r"[^\w .()/-]")
"""Matches characters that must not appear in a notice with the name of a provider."""
MAX_PROVIDER = 64
OWN_FIELD = "provider_specific_fields"
"""A field that LiteLLM adds to answers, messages and calls. OpenAI's API does not have it."""


class LiteLLMBackend:
    """Backend of a target with ``speaks: litellm``: chat and embeddings at a provider."""

    def __init__(self, target: TargetSpec) -> None:
        """Load the SDK, which blocks for seconds the first time. Raises ``ConfigError``."""
        self._target = target
        self._private = () if target.key is None else (target.key.get_secret_value(),)
        self._provider = provider = provider_of(target)
        known = CHAT_PARAMS if provider.params is None else CHAT_PARAMS & provider.params
        self._known = known - DROPPED_HINTS
        self._litellm = load()
        takes_n = provider.params is None or "n" in provider.params
        self.capabilities = replace(
            LITELLM, choices=None if takes_n else False, media_addresses=provider.passes_addresses
        )

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        """Send the exchange through LiteLLM. Raises ``UnsupportedParameter`` for fields that would be ignored."""
        if exchange.endpoint == "completions":
            raise UnsupportedParameter("this model's target accepts messages, not a raw prompt", param="prompt")
        switch_logging_off()  # in this call's task only
        if exchange.endpoint == "embeddings":
            _refuse_others(exchange.params, EMBEDDINGS_PARAMS)
            yield IteratorEvents(self._embed(exchange))
            return
        exchange, left_out = without_neutral_values(exchange, self._known)
        _refuse_others(exchange.params, CHAT_PARAMS)
        refuse_stream_options(exchange)
        arguments = self._arguments(exchange)
        try:
            reply = await self._litellm.acompletion(**arguments)
        except Exception as error:
            raise gateway_error(error, exchange.params, self._private) from error
        try:
            notices = (*stops_notice(exchange, OPENAI_STOPS), *self._provider.dropped.notices(exchange), *left_out)
            reader = ChunkReader(CHAT_FORMAT, self._target.label, exchange.n, notices)
            async with aclosing(_events(reply, reader, exchange, self._private)) as events:
                yield IteratorEvents(events)
        finally:
            if exchange.stream:
                # LiteLLM does not close the stream, so the provider would generate to the end.
                await asyncio.shield(_close(reply))

    def _arguments(self, exchange: Exchange) -> dict[str, Any]:
        provider = self._provider
        given: dict[str, Any] = dict(exchange.params)
        if exchange.n > 1:
            given["n"] = exchange.n
        if exchange.stops:
            given["stop"] = list(exchange.stops[:OPENAI_STOPS])  # the limit of the strictest provider
        if provider.openai_like:
            given["allowed_openai_params"] = sorted(given)  # LiteLLM drops some fields for unknown models
        elif provider.params is not None:
            _refuse_others(given, provider.params)
        provider.dropped.refuse(given)
        if exchange.stream:
            given["stream_options"] = {"include_usage": True}
        return {
            **self._target.options,
            **given,
            **self._address(exchange),
            "messages": [dict(message) for message in exchange.messages],
            "stream": exchange.stream,
            # Clients run their tools themselves, so LiteLLM's MCP gateway must not run tools nor be imported.
            "_skip_mcp_handler": True,
        }

    def _address(self, exchange: Exchange) -> dict[str, Any]:
        target = self._target
        # A private server needs no key, but without a key LiteLLM would read the environment.
        key = target.key.get_secret_value() if target.key is not None else "none" if target.url else None
        return {
            "model": target.model,
            "api_base": target.url or None,
            "api_key": key,
            "extra_headers": dict(exchange.caller.trace) or None,
            "timeout": TIMEOUT,
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": False,
        }

    async def _embed(self, exchange: Exchange) -> AsyncGenerator[Event, None]:
        try:
            reply = await self._litellm.aembedding(**self._target.options, **exchange.params, **self._address(exchange))
        except Exception as error:
            raise gateway_error(error, exchange.params, self._private) from error
        body = _as_json(reply)
        yield Begun(self._target.label)
        yield Document(body)
        if (usage := read_usage(body.get("usage"))) is not None:
            yield usage


async def _events(
    reply: Any, reader: ChunkReader, exchange: Exchange, private: tuple[str, ...]
) -> AsyncGenerator[Event, None]:
    stream = exchange.stream
    has_content = False
    finished = not stream
    finishes: list[Event] = []
    try:
        async for chunk in reply if stream else _only(reply):
            finished = finished or _has_finish_reason(reply)
            for event in reader.read(_as_json(chunk), surrogates=True):
                if isinstance(event, Finish):
                    finishes.append(event)  # held back, as LiteLLM may have invented the reason
                    continue
                if isinstance(event, Begun) and "provider" in event.fields:
                    provider = A_PROVIDER.sub("?", str(event.fields["provider"]))[:MAX_PROVIDER]
                    event = replace(event, notices=(*event.notices, f"provider: {provider}"))
                has_content = has_content or isinstance(event, Delta)
                yield event
    except Exception as error:
        raise gateway_error(error, exchange.params, private) from error
    counted = [event for event in reader.end() if isinstance(event, Usage) and event.prompt + event.completion]
    if not has_content and not any(usage.completion for usage in counted):
        raise UpstreamIncomplete("the provider's answer is empty and may be incomplete; retry")
    if not (finished or _has_finish_reason(reply)):
        raise UpstreamIncomplete("the provider ended its answer without a finish_reason")
    for event in finishes:
        yield event
    for usage in counted:
        # If the provider sent no token counts, LiteLLM's wrapper counts and does not mark these counts.
        yield usage if not stream or _has_usage(reply) else replace(usage, source="estimated")


async def _only(reply: Any) -> AsyncIterator[Any]:
    yield reply


def _has_finish_reason(reply: Any) -> bool:
    """Return whether the provider sent a finish reason. If not, LiteLLM's wrapper has invented the reason.

    If a chunk has text and a finish reason (Gemini's last chunk), the wrapper stores the reason as intermittent until
    the next chunk.
    """
    return any(getattr(reply, name, "unknown") for name in ("received_finish_reason", "intermittent_finish_reason"))


def _has_usage(reply: Any) -> bool:
    """Return whether LiteLLM's wrapper has kept a chunk with token counts. True if the wrapper keeps no chunks."""
    chunks = getattr(reply, "chunks", None)
    return not chunks or any(getattr(chunk, "usage", None) for chunk in chunks)


async def _close(reply: Any) -> None:
    """Close a stream in any state. An error of closing is only logged."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await reply.aclose()
    except Exception as error:
        logging.getLogger(__name__).debug("closing a stream failed: %s", type(error).__name__)


def _as_json(model: Any) -> dict[str, Any]:
    """Return an object of LiteLLM as JSON, without ``OWN_FIELD``."""
    value = changed(model.model_dump(exclude_none=True), lambda value, key: REMOVED if key == OWN_FIELD else value)
    if not isinstance(value, dict):
        raise UpstreamInvalidResponse("the provider's answer is not a completion")
    return value


def _refuse_others(given: Iterable[str], known: Set[str]) -> None:
    for name in given:
        if name not in known:
            raise UnsupportedParameter(
                f"the gateway does not send {name} to this model's provider; leave it out", param=name
            )
