"""Asks an engine which models it serves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.backend.http_client.client import HttpEndpoint
from gateway.backend.openai.tokenizer_client import fetch_json
from gateway.core.errors import UpstreamInvalidResponse, UpstreamTimeout

REQUEST_SECONDS = 10.0
"""The timeout of one request, in seconds."""
CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One entry of an engine's list of models."""

    name: str
    owner: str
    """The field ``owned_by``. vLLM, SGLang and llama.cpp write their own name there."""


async def served_models(endpoint: HttpEndpoint, url: str) -> tuple[ServedModel, ...]:
    """Return the models that ``GET {url}/models`` lists. Raises ``GatewayError`` if the engine sends no such list."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            answer = await fetch_json(endpoint, b"", "/models", url)
    except TimeoutError:
        raise UpstreamTimeout(f"the model's server did not answer /models within {REQUEST_SECONDS:g} s") from None
    match answer:
        case {"data": [*cards]} if all(isinstance(card, dict) and isinstance(card.get("id"), str) for card in cards):
            return tuple([ServedModel(card["id"], str(card.get("owned_by", ""))) for card in cards])
    raise UpstreamInvalidResponse("the model's server sent no list of models; give the URL of an OpenAI API")
