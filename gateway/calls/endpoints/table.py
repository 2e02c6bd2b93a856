"""The table of endpoints that run or render a call.

A row names what it needs as ``module:name``. ``load`` imports that before the listeners open, for the endpoints of the
setting ``server.endpoints`` only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name

from gateway.calls.endpoints.context import CallContext
from gateway.core.call import Call


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint that runs or renders a call."""

    name: str
    """The name of the endpoint in ``server.endpoints``, metrics, log lines and call records. Several may share one."""
    path: str
    read: str
    """The function that turns the parsed body into a ``Call``."""
    request: str
    """The type of the request's body, for ``/openapi.json``."""
    respond: str
    """The function that prepares the call and sends its answer."""
    summary: str
    """The purpose of the endpoint, in a few words."""
    for_tokenizers: bool = False
    """True: the path also exists without ``/v1``, and a request may leave out the model if there is only one."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths of the endpoint."""
        return (self.path, *([self.path.removeprefix("/v1")] if self.for_tokenizers else []))


@dataclass(frozen=True, slots=True)
class LoadedEndpoint:
    """An endpoint with the functions that serve it."""

    name: str
    read: Callable[..., Call]
    """``read(body, request_id=…, caller=…)`` turns the parsed body into a ``Call``, or raises ``RequestError``."""
    respond: Callable[[CallContext], Awaitable[None]]
    """Prepares the call and sends its answer."""
    for_tokenizers: bool


ENDPOINTS = (
    Endpoint(name="chat", path="/v1/chat/completions", summary="Continue a conversation",
             read="gateway.wire.requests:read_chat", request="gateway.wire.request_fields:ChatRequest",
             respond="gateway.calls.endpoints.answer:respond_chat"),
    Endpoint(name="completions", path="/v1/completions",
             summary="Continue a prompt, which no template changes", read="gateway.wire.requests:read_completion",
             request="gateway.wire.request_fields:CompletionRequest",
             respond="gateway.calls.endpoints.answer:respond_completion"),
    Endpoint(name="embeddings", path="/v1/embeddings", summary="Embed texts",
             read="gateway.wire.requests:read_embedding", request="gateway.wire.request_fields:EmbeddingRequest",
             respond="gateway.calls.endpoints.answer:respond_embedding"),
    Endpoint(name="responses", path="/v1/responses",
             summary="Answer in the form of OpenAI's Responses API",
             read="gateway.wire.responses_api.request:read_response",
             request="gateway.wire.responses_api.fields:ResponsesRequest",
             respond="gateway.calls.endpoints.responses:respond"),
    Endpoint(name="input_tokens", path="/v1/responses/input_tokens",
             summary="Count the input tokens of a request to /v1/responses, without calling the model",
             read="gateway.wire.responses_api.request:read_response",
             request="gateway.wire.responses_api.fields:ResponsesRequest",
             respond="gateway.calls.endpoints.responses:respond_input_tokens"),
    Endpoint(name="loglikelihood", path="/v1/loglikelihood",
             summary="Score labelled candidates, and name the likeliest",
             read="gateway.wire.requests:read_loglikelihood",
             request="gateway.wire.request_fields:LoglikelihoodRequest",
             respond="gateway.calls.endpoints.loglikelihood:respond"),
    Endpoint(name="render", path="/v1/render",
             summary="Show the prompt of a chat request, without calling the model",
             read="gateway.calls.endpoints.render:read", request="gateway.wire.request_fields:ChatRequest",
             respond="gateway.calls.endpoints.render:respond"),
    Endpoint(name="render", path="/v1/chat/completions/render",
             summary="The token ids and sampling parameters of a chat request, as vLLM's GenerateRequest",
             read="gateway.calls.endpoints.render:read", request="gateway.wire.request_fields:ChatRequest",
             respond="gateway.calls.endpoints.generate_request:respond_chat"),
    Endpoint(name="render", path="/v1/completions/render",
             summary="The token ids and sampling parameters of raw prompts, each as vLLM's GenerateRequest",
             read="gateway.wire.requests:read_completion", request="gateway.wire.request_fields:CompletionRequest",
             respond="gateway.calls.endpoints.generate_request:respond_completion"),
    Endpoint(name="tokenize", path="/v1/tokenize", for_tokenizers=True,
             summary="The token ids of a text or of messages", read="gateway.wire.tokenizer_requests:read_tokenize",
             request="gateway.wire.tokenizer_requests:TokenizeRequest",
             respond="gateway.calls.endpoints.tokenizer:respond_tokenize"),
    Endpoint(name="detokenize", path="/v1/detokenize", for_tokenizers=True, summary="The text of token ids",
             read="gateway.wire.tokenizer_requests:read_detokenize",
             request="gateway.wire.tokenizer_requests:DetokenizeRequest",
             respond="gateway.calls.endpoints.tokenizer:respond_detokenize"),
)  # fmt: skip
BY_PATH: Mapping[str, Endpoint] = {endpoint.path: endpoint for endpoint in ENDPOINTS}


def served(names: Sequence[str]) -> tuple[Endpoint, ...]:
    """Return the endpoints with these names, in the order of the table. No names: all endpoints."""
    return tuple(endpoint for endpoint in ENDPOINTS if not names or endpoint.name in names)


def has_tokenizers(names: Sequence[str]) -> bool:
    """Return whether the endpoints for tokens are served, with which ``/tokenizer_info`` comes."""
    return not names or "tokenize" in names


@cache
def load(path: str) -> LoadedEndpoint:
    """Import and return the endpoint with a path, such as ``/v1/chat/completions``."""
    row = BY_PATH[path]
    return LoadedEndpoint(row.name, resolve_name(row.read), resolve_name(row.respond), row.for_tokenizers)
