"""The table of endpoints that run or render a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.calls.endpoints import answer, loglikelihood, render, tokenizer
from gateway.calls.endpoints.context import CallContext
from gateway.core.call import Call
from gateway.wire.request_fields import ChatRequest, CompletionRequest, EmbeddingRequest, LoglikelihoodRequest
from gateway.wire.requests import read_chat, read_completion, read_embedding, read_loglikelihood
from gateway.wire.responses import ChatWriter, CompletionWriter
from gateway.wire.responses_api.fields import ResponsesRequest
from gateway.wire.responses_api.request import read_response
from gateway.wire.responses_api.writer import ResponsesApiWriter
from gateway.wire.tokenizer_requests import (
    DetokenizeRequest,
    TokenizeMessages,
    TokenizeText,
    read_detokenize,
    read_tokenize,
)

Respond = Callable[[CallContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint that runs or renders a call."""

    name: str
    """The name of the endpoint in metrics, log lines and call records."""
    path: str
    read: Callable[..., Call]
    """``read(body, request_id=…, caller=…)`` turns the parsed body into a ``Call``, or raises ``RequestError``."""
    request: Any
    """The type of the request's body, for ``/openapi.json``."""
    summary: str
    """The purpose of the endpoint, in a few words."""
    respond: Respond
    """Prepares the call and sends its answer."""
    for_tokenizers: bool = False
    """True: the path also exists without ``/v1``, and a request may leave out the model if there is only one."""
    streams: bool = False
    """True: the answer is a stream if the request asks for one."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths of the endpoint."""
        return (self.path, *([self.path.removeprefix("/v1")] if self.for_tokenizers else []))


answer_chat = partial(answer.respond, ChatWriter)
answer_completion = partial(answer.respond, CompletionWriter)
answer_embedding = partial(answer.respond, None)
answer_response = partial(answer.respond, ResponsesApiWriter)
"""The four ``answer_…`` functions send a backend's answer. Only answers with a completion need a writer."""

# fmt: off
ENDPOINTS = (
    Endpoint(name="chat", path="/v1/chat/completions", read=read_chat, respond=answer_chat, streams=True,
             request=ChatRequest, summary="Continue a conversation"),
    Endpoint(name="completions", path="/v1/completions", read=read_completion, respond=answer_completion, streams=True,
             request=CompletionRequest, summary="Continue a prompt, which no template changes"),
    Endpoint(name="embeddings", path="/v1/embeddings", read=read_embedding, respond=answer_embedding,
             request=EmbeddingRequest, summary="Embed texts"),
    Endpoint(name="responses", path="/v1/responses", read=read_response, respond=answer_response, streams=True,
             request=ResponsesRequest, summary="Answer in the form of OpenAI's Responses API"),
    Endpoint(name="input_tokens", path="/v1/responses/input_tokens", read=read_response,
             respond=tokenizer.respond_input_tokens, request=ResponsesRequest,
             summary="Count the input tokens of a request to /v1/responses, without calling the model"),
    Endpoint(name="loglikelihood", path="/v1/loglikelihood", read=read_loglikelihood, respond=loglikelihood.respond,
             request=LoglikelihoodRequest, summary="Score labelled candidates, and name the likeliest"),
    Endpoint(name="render", path="/v1/render", read=partial(read_chat, answered=False), respond=render.respond,
             request=ChatRequest, summary="Show the prompt of a chat request, without calling the model"),
    Endpoint(name="tokenize", path="/v1/tokenize", read=read_tokenize, respond=tokenizer.respond_tokenize,
             request=TokenizeText | TokenizeMessages, summary="The token ids of a text or of messages",
             for_tokenizers=True),
    Endpoint(name="detokenize", path="/v1/detokenize", read=read_detokenize, respond=tokenizer.respond_detokenize,
             request=DetokenizeRequest, summary="The text of token ids", for_tokenizers=True),
)
# fmt: on

BY_PATH: Mapping[str, Endpoint] = {endpoint.path: endpoint for endpoint in ENDPOINTS}
