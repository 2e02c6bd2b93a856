"""LiteLLM's SDK, imported with telemetry, logs and downloads off, and its data about a target's provider.

The import takes seconds and 200 MB. It runs in the thread that assembles a configuration with a litellm target.
"""

from __future__ import annotations

import gc
import logging
import os
import warnings
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from typing import Any

from gateway.backend.litellm.dropped import DISTORTED, PARAMETER_PROBES, Dropped, dropped_for
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import ConfigError, MediaNotAllowed, Problem
from metatemplate.values.words import install_extra, quoted

OPENAI_LIKE = frozenset({"openai", "custom_openai", "openai_like", "hosted_vllm"})
"""Providers that have OpenAI's API, so that LiteLLM translates no parameter."""
PASSES_ADDRESSES = OPENAI_LIKE | {
    "anthropic",
    "azure",
    "azure_ai",
    "databricks",
    "fireworks_ai",
    "groq",
    "mistral",
    "openrouter",
    "perplexity",
    "together_ai",
    "xai",
}
"""Providers to which LiteLLM passes the address of an image (observed at 1.106.2). For others, LiteLLM downloads
the image or leaves the image out."""

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # the default downloads a price list on import
    "LITELLM_MODE": "PRODUCTION",  # the default reads .env files
    "LITELLM_LOG": "ERROR",
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",
}


@dataclass(frozen=True, slots=True)
class Provider:
    """LiteLLM's data about a target's provider."""

    openai_like: bool
    passes_addresses: bool
    """True: LiteLLM passes addresses of media in messages to the provider."""
    params: frozenset[str] | None
    """The chat parameters that LiteLLM translates for the provider; None: all."""
    dropped: Dropped


def provider_of(target: TargetSpec) -> Provider:
    """Return the provider of a target's model. Raises ``ConfigError`` for an unknown provider or a missing package."""
    try:
        litellm = load()
    except ImportError as error:
        message = f"litellm needs the package {error.name}; run {install_extra('litellm')}"
        raise ConfigError((Problem(target.label, 0, "speaks", message),)) from error
    try:
        model, name, _, _ = litellm.get_llm_provider(target.model, api_base=target.url or None)
    except Exception as error:
        message = f"LiteLLM has no provider for {quoted(target.model)}; write provider/model, such as openai/NAME"
        raise ConfigError((Problem(target.label, 0, "model", message),)) from error
    like_openai = name in OPENAI_LIKE
    found = None if like_openai else litellm.get_supported_openai_params(model=model, custom_llm_provider=name)
    translated = frozenset() if like_openai else frozenset(PARAMETER_PROBES if found is None else found)
    return Provider(
        openai_like=like_openai,
        passes_addresses=name in PASSES_ADDRESSES,
        params=None if found is None else translated - DISTORTED.get(name, frozenset()),
        dropped=dropped_for(litellm, model, name, translated),
    )


@cache
def load() -> Any:
    """Load and return the SDK. Raises ``ImportError`` if the SDK is not installed."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import httpx
    import litellm
    from litellm.litellm_core_utils import url_utils
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    # LiteLLM's transport, without redirects: a redirect would send the key to any server that a provider names.
    litellm.aclient_session = httpx.AsyncClient(
        transport=AsyncHTTPHandler.create_async_transport(), follow_redirects=False, trust_env=False
    )
    url_utils.validate_url = _refuse_download
    litellm.telemetry = False
    litellm.drop_params = False
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    for callbacks in ("callbacks", "success_callback", "failure_callback", "input_callback"):
        setattr(litellm, callbacks, [])
    # LiteLLM's use of pydantic causes warnings about which readers of the gateway's log can do nothing.
    for module in ("litellm", "pydantic._internal._generate_schema"):
        warnings.filterwarnings("ignore", module=module)
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.setLevel(logging.CRITICAL)
    _keep_missing_finish_reasons()
    _keep_provider_of_chunks()
    copy_context().run(_import_lazy_modules, litellm)
    # LiteLLM has half a million permanent objects. Without this, each full collection would traverse all of them.
    gc.collect()
    gc.freeze()
    return litellm


def switch_logging_off() -> None:
    """Mark the LiteLLM calls of this context as internal.

    LiteLLM prepares no callback data for internal calls. This saves a sixth of the time of a call.
    """
    from litellm._internal_context import is_internal_call

    is_internal_call.set(True)


def _import_lazy_modules(litellm: Any) -> None:
    """Import the modules that LiteLLM's first call would import. That import would block the event loop for seconds."""
    import openai.resources.chat.completions  # noqa: F401

    switch_logging_off()
    messages = [{"role": "user", "content": "hi"}]
    for stream in (False, True):
        list(litellm.completion(model="openai/none", messages=messages, mock_response="hi", stream=stream))


def _keep_missing_finish_reasons() -> None:
    """Stop LiteLLM from adding the finish reason "stop" to Gemini streams, even to a stream that was cut off."""
    from litellm.llms.vertex_ai.gemini.vertex_and_google_ai_studio_gemini import VertexGeminiConfig

    config: Any = VertexGeminiConfig
    original = config._check_finish_reason

    def check_finish_reason(message: Any, finish_reason: str | None) -> str | None:
        return original(message, finish_reason) if finish_reason else None

    config._check_finish_reason = staticmethod(check_finish_reason)


def _keep_provider_of_chunks() -> None:
    """Keep the key ``provider`` of OpenRouter's chunks, which LiteLLM drops. The key names the answering provider."""
    from litellm.llms.openrouter.chat.transformation import OpenRouterChatCompletionStreamingHandler

    handler: Any = OpenRouterChatCompletionStreamingHandler
    original = handler.chunk_parser

    def chunk_parser(self: Any, chunk: dict[str, Any]) -> Any:
        parsed = original(self, chunk)
        if "provider" in chunk:
            parsed.provider = chunk["provider"]
        return parsed

    handler.chunk_parser = chunk_parser


def _refuse_download(url: str) -> tuple[str, str]:
    """Refuse a download. Replaces the check that LiteLLM makes before a download, for example for a token count."""
    raise MediaNotAllowed("the gateway does not fetch addresses; send the media as a data: URI")
