"""How are provider dialects spoken? By LiteLLM's SDK, imported on the first call, kept on a short lead.

LiteLLM retries by itself, turns broken streams into success, leaves upstreams running and invents
finish reasons (``specs/reliability.md`` 0.2–0.5, measured). So: no retries, every stream closed, one line of errors
through our tables, and an empty answer is an error, never an empty success. The import takes seconds and 200 MB;
it happens in a thread, so that the event loop goes on.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from typing import Any

from gateway.backend.answers import CHAT, Answer, read_usage
from gateway.backend.engines import CHAT_PARAMS, EMBEDDINGS_PARAMS, OPENAI_STOPS
from gateway.backend.litellm_errors import named
from gateway.backend.request import refuse_stream_options, unsent_stops
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import (
    GatewayError,
    MediaNotAllowed,
    UnsupportedParameter,
    UpstreamIncomplete,
    UpstreamInvalidResponse,
    UpstreamModelMissing,
)
from gateway.core.events import Begun, Delta, Document, Event, Finish, Usage
from gateway.core.exchange import Events, Exchange
from gateway.stream.batches import Singles

PASSED = CHAT_PARAMS - {"metadata"}
"""Fields handed on; LiteLLM keeps ``metadata`` for itself. Anything else is refused by name."""
TIMEOUT = 3600.0
"""Seconds given to LiteLLM; its timeouts are no deadlines, ours stand around this backend."""
CLOSING = 2.0
"""Seconds that closing a stream may take."""
OPENAI_LIKE = frozenset({"openai", "custom_openai", "openai_like", "hosted_vllm"})
"""Providers that speak OpenAI's own dialect, where no parameter needs translating."""
MEDIA = ("image_url", "video_url", "audio_url")
"""Fields of a part that may be an address."""
PASSES_ADDRESSES = OPENAI_LIKE | {
    "anthropic", "azure", "azure_ai", "databricks", "fireworks_ai", "groq", "mistral", "openrouter", "perplexity",
    "together_ai", "xai",
}  # fmt: skip
"""Providers to which LiteLLM hands on the address of an image (seen at 1.106.2). For others it downloads the image, or
leaves it out."""

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # the default fetches a price list when imported
    "LITELLM_MODE": "PRODUCTION",  # or it reads any .env file in sight
    "LITELLM_LOG": "ERROR",
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",
}


class LiteLLMBackend:
    """``speaks: litellm``: chat and embeddings at a provider."""

    def __init__(self, target: TargetSpec) -> None:
        self._target = target
        self._litellm: Any = None
        """The SDK, once it has been loaded."""
        self._known: frozenset[str] | None = None
        self._dialect = ""
        """The provider, once LiteLLM has told it, and the parameters it takes; None: all."""

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        """Ask the provider; ``UnsupportedParameter`` for what it, or LiteLLM, would drop."""
        _check_names(exchange)
        if self._litellm is None:
            self._litellm = await asyncio.to_thread(load)
        litellm = self._litellm
        _unlogged().set(True)  # in this call's task only
        if exchange.endpoint == "embeddings":
            yield Singles(self._embed(litellm, exchange))
            return
        arguments = self._arguments(litellm, exchange)
        try:
            reply = await litellm.acompletion(**arguments)
        except Exception as error:
            raise named(error) from error
        try:
            answer = Answer(CHAT, self._target.label, exchange.n, unsent_stops(exchange, OPENAI_STOPS))
            async with aclosing(_events(reply, answer, exchange.stream)) as events:
                yield Singles(events)
        finally:
            if exchange.stream:
                # Left to itself, LiteLLM lets the provider generate to the end.
                await asyncio.shield(_close(reply))

    def _arguments(self, litellm: Any, exchange: Exchange) -> dict[str, Any]:
        given: dict[str, Any] = dict(exchange.params)
        if exchange.n > 1:
            given["n"] = exchange.n
        if exchange.stops:
            given["stop"] = list(exchange.stops[:OPENAI_STOPS])  # the strictest provider's number
        if not self._dialect:
            self._dialect = self._provider(litellm)
            if self._dialect not in OPENAI_LIKE:
                model = self._target.model
                known = litellm.get_supported_openai_params(model=model, custom_llm_provider=self._dialect)
                self._known = None if known is None else frozenset(known)
        if self._dialect not in PASSES_ADDRESSES:
            _refuse_addresses(exchange)
        if self._dialect in OPENAI_LIKE:
            given["allowed_openai_params"] = sorted(given)  # or some are dropped for models it has not heard of
        elif self._known is not None:
            for name in given:
                if name not in self._known:
                    raise _unsupported(name)
        if exchange.stream:
            given["stream_options"] = {"include_usage": True}
        return {
            **self._target.options,
            **given,
            **self._address(),
            "messages": [dict(message) for message in exchange.messages],
            "stream": exchange.stream,
        }

    def _provider(self, litellm: Any) -> str:
        try:
            _, provider, _, _ = litellm.get_llm_provider(self._target.model, api_base=self._target.url or None)
        except Exception as error:
            raise UpstreamModelMissing(
                "LiteLLM knows no provider for the configured model; write it as provider/model, such as openai/NAME"
            ) from error
        return str(provider)

    def _address(self) -> dict[str, Any]:
        key = self._target.key.reveal() if self._target.key is not None else None
        if key is None and self._target.url:
            key = "none"  # a server of one's own needs no key; without one LiteLLM would look in the environment
        return {
            "model": self._target.model,
            "api_base": self._target.url or None,
            "api_key": key,
            "timeout": TIMEOUT,
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": False,
        }

    async def _embed(self, litellm: Any, exchange: Exchange) -> AsyncGenerator[Event, None]:
        try:
            reply = await litellm.aembedding(**self._target.options, **exchange.params, **self._address())
        except Exception as error:
            raise named(error) from error
        body = _plain(reply)
        yield Begun(self._target.label)
        yield Document(body)
        if (usage := read_usage(body.get("usage"))) is not None:
            yield usage


async def _events(reply: Any, answer: Answer, stream: bool) -> AsyncGenerator[Event, None]:
    said = False
    ends: list[Event] = []
    try:
        async for chunk in reply if stream else _alone(reply):
            for event in answer.take(_plain(chunk), odd=True):
                if isinstance(event, Finish):
                    ends.append(event)  # it may be invented: held back until that is known
                    continue
                said = said or isinstance(event, Delta)
                yield event
    except GatewayError:
        raise
    except Exception as error:
        raise named(error) from error
    counted = [event for event in answer.end() if isinstance(event, Usage) and event.prompt + event.completion]
    if not said and not any(usage.completion for usage in counted):
        raise UpstreamIncomplete("the provider's answer is empty; LiteLLM makes an end of what may have been cut off")
    if stream and getattr(reply, "received_finish_reason", "unknown") is None:
        raise UpstreamIncomplete("the provider ended its answer without a finish_reason")
    for event in ends:
        yield event
    for usage in counted:
        # Where the provider counted nothing, LiteLLM's wrapper counts by itself and does not say so.
        yield usage if not stream or _provider_counted(reply) else replace(usage, source="estimated")


async def _alone(reply: Any) -> AsyncIterator[Any]:
    yield reply


def _provider_counted(reply: Any) -> bool:
    """True when one of the chunks that the wrapper kept carries usage, or when it keeps none."""
    chunks = getattr(reply, "chunks", None)
    return not chunks or any(getattr(chunk, "usage", None) for chunk in chunks)


async def _close(reply: Any) -> None:
    """Close a stream whatever state it is in; its own trouble does not matter any more."""
    try:
        async with asyncio.timeout(CLOSING):
            await reply.aclose()
    except Exception as error:
        logging.getLogger(__name__).debug("closing a stream failed: %s", type(error).__name__)


def _plain(model: Any) -> dict[str, Any]:
    """A LiteLLM object as the JSON it stands for."""
    value = model.model_dump(exclude_none=True)
    if not isinstance(value, dict):
        raise UpstreamInvalidResponse("the provider's answer is not a completion")
    return value


def _check_names(exchange: Exchange) -> None:
    if exchange.endpoint == "completions":
        raise UnsupportedParameter("a litellm target takes messages, not a raw prompt", param="prompt")
    known = EMBEDDINGS_PARAMS if exchange.endpoint == "embeddings" else PASSED
    for name in exchange.params:
        if name not in known:
            raise _unsupported(name)
    refuse_stream_options(exchange)


def _refuse_addresses(exchange: Exchange) -> None:
    """For providers whose images LiteLLM would download, inside the gateway; admission has left no other addresses."""
    for number, message in enumerate(exchange.messages):
        content = message.get("content")
        for index, part in enumerate(content if isinstance(content, list) else ()):
            for field in MEDIA:
                medium = part.get(field)
                url = medium.get("url") if isinstance(medium, Mapping) else medium
                if isinstance(url, str) and url[:6].lower() == "https:":
                    where = f"messages[{number}].content[{index}].{field}"
                    raise MediaNotAllowed(
                        f"{where} is an address, which this model's provider does not fetch, nor does the gateway; "
                        "send the media as a data: URI",
                        param=where,
                    )


def _fetch_nothing(url: str) -> tuple[str, str]:
    """In place of LiteLLM's check of an address that it is about to fetch, for a token count for example."""
    raise MediaNotAllowed("the gateway fetches no addresses; send the media as a data: URI")


def _unsupported(name: str) -> UnsupportedParameter:
    return UnsupportedParameter(f"this model's provider does not take {name}; leave it out", param=name)


@cache
def _unlogged() -> ContextVar[bool]:
    """LiteLLM's own switch for calls that nobody logs or bills: where it is on, nothing is prepared for callbacks.

    There are none here, and that preparation, prompt and answer included, is a sixth of what a call costs.
    """
    try:
        from litellm._internal_context import is_internal_call
    except ImportError:  # an older SDK: it prepares its logs, redacted, and gives them to nobody
        return ContextVar("unlogged", default=False)
    return is_internal_call


@cache
def load() -> Any:
    """The SDK, imported with its telemetry, logs and downloads off."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import httpx
        import litellm
    except ModuleNotFoundError:
        raise GatewayError(
            "this model needs LiteLLM, which is not installed: pip install 'meta-gateway[litellm]'"
        ) from None
    from litellm.litellm_core_utils import url_utils
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    # LiteLLM's own transport, but no redirects: it would carry the key wherever a server points (row B10).
    litellm.aclient_session = httpx.AsyncClient(
        transport=AsyncHTTPHandler.create_async_transport(), follow_redirects=False, trust_env=False
    )
    url_utils.validate_url = _fetch_nothing
    litellm.telemetry = False
    litellm.drop_params = False
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    for callbacks in ("callbacks", "success_callback", "failure_callback", "input_callback"):
        setattr(litellm, callbacks, [])
    # It warns its users of its own use of pydantic; nobody who reads the gateway's log can mend that.
    for module in ("litellm", "pydantic._internal._generate_schema"):
        warnings.filterwarnings("ignore", module=module)
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.setLevel(logging.CRITICAL)
    # Half a million objects that never die: without this every full collection would walk them, and hold up every call.
    gc.collect()
    gc.freeze()
    return litellm
