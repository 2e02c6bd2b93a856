"""The table of endpoints that run or render a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Call
from gateway.edge.endpoints import answer, loglikelihood, render, tokenizer
from gateway.edge.http_request import HttpRequest
from gateway.wire.requests import read_chat, read_completion, read_embedding, read_loglikelihood
from gateway.wire.responses import ChatWriter, CompletionWriter
from gateway.wire.responses_api.request import read_response
from gateway.wire.responses_api.writer import ResponsesApiWriter
from gateway.wire.tokenizer_requests import read_detokenize, read_tokenize

Respond = Callable[[HttpRequest, Call, Route, CallTimeline], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint."""

    name: str
    """The name of the endpoint in metrics, log lines and call records."""
    path: str
    read: Callable[..., Call]
    """``read(body, request_id=…, received=…)`` turns the parsed body into a ``Call``, or raises ``RequestError``."""
    respond: Respond
    """Prepares the call and sends its answer."""
    for_tokenizers: bool = False
    """True: the path also exists without ``/v1``, and a request may leave out the model if there is only one."""


answer_chat = partial(answer.respond, ChatWriter)
answer_completion = partial(answer.respond, CompletionWriter)
answer_embedding = partial(answer.respond, None)
answer_response = partial(answer.respond, ResponsesApiWriter)
"""Send a backend's answer, with the writer of the endpoint's format. An answer without a completion has no writer."""

read_rendered_chat = partial(read_chat, answered=False)
"""Reads a chat request that gets no answer, so that its conversation may be complete."""

ENDPOINTS = (
    Endpoint(name="chat", path="/v1/chat/completions", read=read_chat, respond=answer_chat),
    Endpoint(name="completions", path="/v1/completions", read=read_completion, respond=answer_completion),
    Endpoint(name="embeddings", path="/v1/embeddings", read=read_embedding, respond=answer_embedding),
    Endpoint(name="responses", path="/v1/responses", read=read_response, respond=answer_response),
    Endpoint(name="loglikelihood", path="/v1/loglikelihood", read=read_loglikelihood, respond=loglikelihood.respond),
    Endpoint(name="render", path="/v1/render", read=read_rendered_chat, respond=render.respond),
    Endpoint(name="render", path="/v1/chat/completions/render", read=read_rendered_chat, respond=render.respond_tokens),
    Endpoint(
        name="tokenize",
        path="/v1/tokenize",
        read=read_tokenize,
        respond=tokenizer.respond_tokenize,
        for_tokenizers=True,
    ),
    Endpoint(
        name="detokenize",
        path="/v1/detokenize",
        read=read_detokenize,
        respond=tokenizer.respond_detokenize,
        for_tokenizers=True,
    ),
)
