"""Backend for providers with a dialect of their own, spoken by LiteLLM's SDK.

LiteLLM retries by itself, turns broken streams into success, leaves upstreams running and invents
finish reasons (``specs/reliability.md`` 0.2–0.5, measured). So: no retries, every stream closed, errors named by our
own tables, and an empty answer is an error, never an empty success. The import takes seconds and 200 MB; it happens
when a configuration that names a litellm target is put together, in that thread, so no call waits for it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from functools import cache
from typing import Any

from gateway.backend.engines import CHAT_PARAMS, EMBEDDINGS_PARAMS, LITELLM, OPENAI_STOPS
from gateway.backend.litellm.errors import named
from gateway.backend.openai.events import CHAT, ChunkReader, read_usage
from gateway.backend.openai.request_body import refuse_stream_options, stops_notice
from gateway.config.schema.names import quote
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import (
    ConfigError,
    GatewayError,
    MediaNotAllowed,
    Problem,
    UnsupportedParameter,
    UpstreamIncomplete,
    UpstreamInvalidResponse,
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

JSON_FORMATS: tuple[dict[str, Any], ...] = (
    {"type": "json_object"},
    {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object", "properties": {}}}},
)
"""One example of each ``response_format`` that asks for JSON."""

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # the default fetches a price list when imported
    "LITELLM_MODE": "PRODUCTION",  # or it reads any .env file in sight
    "LITELLM_LOG": "ERROR",
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",
}


class LiteLLMBackend:
    """``speaks: litellm``: chat and embeddings at a provider."""

    def __init__(self, target: TargetSpec) -> None:
        """Load the SDK, which blocks for seconds the first time.

        Raises ``ConfigError`` when a package is missing, or when LiteLLM knows no provider for the target's model.
        """
        self._target = target
        self._litellm = litellm = _loaded(target)
        model, provider = _model_and_provider(litellm, target)
        self._openai_like = provider in OPENAI_LIKE
        self._passes_addresses = provider in PASSES_ADDRESSES
        self._known: frozenset[str] | None = None
        """The chat parameters that the provider takes; None: all."""
        self._dropped_formats: frozenset[str] = frozenset()
        """Types of ``response_format`` that LiteLLM accepts for this provider and then leaves out of the request."""
        if not self._openai_like:
            known = litellm.get_supported_openai_params(model=model, custom_llm_provider=provider)
            self._known = None if known is None else frozenset(known)
            self._dropped_formats = _dropped_formats(litellm, model, provider, self._known)
        takes_n = self._known is None or "n" in self._known
        self.capabilities = replace(LITELLM, choices=None if takes_n else False)
        """The provider's row of capabilities."""

    @asynccontextmanager
    async def open(self, exchange: Exchange) -> AsyncIterator[Events]:
        """Ask the provider; ``UnsupportedParameter`` for what it, or LiteLLM, would drop."""
        _check_names(exchange)
        litellm = self._litellm
        _unlogged().set(True)  # in this call's task only
        if exchange.endpoint == "embeddings":
            yield Singles(self._embed(litellm, exchange))
            return
        arguments = self._arguments(exchange)
        try:
            reply = await litellm.acompletion(**arguments)
        except Exception as error:
            raise named(error, exchange.params) from error
        try:
            reader = ChunkReader(CHAT, self._target.label, exchange.n, stops_notice(exchange, OPENAI_STOPS))
            async with aclosing(_events(reply, reader, exchange)) as events:
                yield Singles(events)
        finally:
            if exchange.stream:
                # Left to itself, LiteLLM lets the provider generate to the end.
                await asyncio.shield(_close(reply))

    def _arguments(self, exchange: Exchange) -> dict[str, Any]:
        given: dict[str, Any] = dict(exchange.params)
        if exchange.n > 1:
            given["n"] = exchange.n
        if exchange.stops:
            given["stop"] = list(exchange.stops[:OPENAI_STOPS])  # the strictest provider's number
        if not self._passes_addresses:
            _refuse_addresses(exchange)
        if self._openai_like:
            given["allowed_openai_params"] = sorted(given)  # or some are dropped for models it has not heard of
        elif self._known is not None:
            for name in given:
                if name not in self._known:
                    raise _unsupported(name)
        if self._dropped_formats and (kind := _format_type(given.get("response_format"))) in self._dropped_formats:
            message = f"this model's provider has no response_format of type {kind}; leave it out or use another type"
            raise UnsupportedParameter(message, param="response_format")
        if exchange.stream:
            given["stream_options"] = {"include_usage": True}
        return {
            **self._target.options,
            **given,
            **self._address(),
            "messages": [dict(message) for message in exchange.messages],
            "stream": exchange.stream,
            # Tools are the client's: LiteLLM's own MCP gateway must not run them, nor be imported for them.
            "_skip_mcp_handler": True,
        }

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
            raise named(error, exchange.params) from error
        body = _plain(reply)
        yield Begun(self._target.label)
        yield Document(body)
        if (usage := read_usage(body.get("usage"))) is not None:
            yield usage


async def _events(reply: Any, reader: ChunkReader, exchange: Exchange) -> AsyncGenerator[Event, None]:
    stream = exchange.stream
    said = False
    finished = not stream
    ends: list[Event] = []
    try:
        async for chunk in reply if stream else _alone(reply):
            finished = finished or _provider_finished(reply)
            for event in reader.read(_plain(chunk), surrogates=True):
                if isinstance(event, Finish):
                    ends.append(event)  # it may be invented: held back until that is known
                    continue
                said = said or isinstance(event, Delta)
                yield event
    except GatewayError:
        raise
    except Exception as error:
        raise named(error, exchange.params) from error
    counted = [event for event in reader.end() if isinstance(event, Usage) and event.prompt + event.completion]
    if not said and not any(usage.completion for usage in counted):
        raise UpstreamIncomplete("the provider's answer is empty; LiteLLM makes an end of what may have been cut off")
    if not (finished or _provider_finished(reply)):
        raise UpstreamIncomplete("the provider ended its answer without a finish_reason")
    for event in ends:
        yield event
    for usage in counted:
        # Where the provider counted nothing, LiteLLM's wrapper counts by itself and does not say so.
        yield usage if not stream or _provider_counted(reply) else replace(usage, source="estimated")


async def _alone(reply: Any) -> AsyncIterator[Any]:
    yield reply


def _provider_finished(reply: Any) -> bool:
    """True when the provider has given a finish reason; without one LiteLLM's wrapper ends the stream with its own.

    The wrapper notes the reason of a chunk that also carries text (Gemini's last) as an intermittent one, and forgets
    it with the next chunk.
    """
    return any(getattr(reply, name, "unknown") for name in ("received_finish_reason", "intermittent_finish_reason"))


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
    from litellm._internal_context import is_internal_call

    return is_internal_call


def _loaded(target: TargetSpec) -> Any:
    try:
        return load()
    except ImportError as error:
        message = f"speaks: litellm needs the package {error.name}: pip install 'meta-gateway[litellm]'"
        raise ConfigError((Problem(target.label, 0, "speaks", message),)) from error


def _model_and_provider(litellm: Any, target: TargetSpec) -> tuple[str, str]:
    """The model's name without the provider's prefix, as LiteLLM's own calls have it, and the provider."""
    try:
        model, provider, _, _ = litellm.get_llm_provider(target.model, api_base=target.url or None)
    except Exception as error:
        message = f"LiteLLM knows no provider for {quote(target.model)}: write provider/model, such as openai/NAME"
        raise ConfigError((Problem(target.label, 0, "model", message),)) from error
    return str(model), str(provider)


def _dropped_formats(litellm: Any, model: str, provider: str, known: frozenset[str] | None) -> frozenset[str]:
    """The types of ``response_format`` that come to the same request as asking for plain text."""
    if known is not None and "response_format" not in known:
        return frozenset()  # refused by its name

    def request(value: Any) -> Any:
        return litellm.get_optional_params(model=model, custom_llm_provider=provider, response_format=value)

    text = request({"type": "text"})
    return frozenset(value["type"] for value in JSON_FORMATS if request(value) == text)


def _format_type(value: object) -> object:
    return value.get("type") if isinstance(value, dict) else None


def _import_the_rest(litellm: Any) -> None:
    """Import what LiteLLM and the OpenAI SDK leave to the first call, which would hold the event loop for seconds."""
    import openai.resources.chat.completions  # noqa: F401

    _unlogged().set(True)
    messages = [{"role": "user", "content": "hi"}]
    for stream in (False, True):
        answer = litellm.completion(model="openai/none", messages=messages, mock_response="hi", stream=stream)
        if stream:
            list(answer)


def _keep_open_ends() -> None:
    """Stop LiteLLM from giving each chunk of a Gemini stream the finish reason "stop" where Google has given none.

    With it, a stream that was cut off could not be told from one that has ended.
    """
    from litellm.llms.vertex_ai.gemini.vertex_and_google_ai_studio_gemini import VertexGeminiConfig

    config: Any = VertexGeminiConfig
    named_reason = config._check_finish_reason

    def check_finish_reason(message: Any, finish_reason: str | None) -> str | None:
        return named_reason(message, finish_reason) if finish_reason else None

    config._check_finish_reason = staticmethod(check_finish_reason)


@cache
def load() -> Any:
    """The SDK, imported with its telemetry, logs and downloads off; raises ``ImportError`` when it is not installed."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import httpx
    import litellm
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
    _keep_open_ends()
    copy_context().run(_import_the_rest, litellm)
    # Half a million objects that never die: without this every full collection would walk them, and hold up every call.
    gc.collect()
    gc.freeze()
    return litellm
