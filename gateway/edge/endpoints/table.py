"""The table of endpoints that run or render a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from gateway.calls.route import Route
from gateway.calls.timeline import CallTimeline
from gateway.core.call import Call
from gateway.edge.endpoints import answer, loglikelihood, render
from gateway.edge.http_request import HttpRequest
from gateway.wire.requests import read_chat, read_completion, read_embedding, read_loglikelihood
from gateway.wire.responses import ChatWriter, CompletionWriter, ResponseWriter

Respond = Callable[[type[ResponseWriter] | None, HttpRequest, Call, Route, CallTimeline], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint."""

    name: str
    """The name of the endpoint in metrics, log lines and call records."""
    path: str
    read: Callable[..., Call]
    """``read(body, request_id=…, received=…)`` turns the parsed body into a ``Call``, or raises ``RequestError``."""
    respond: Respond = answer.respond
    """Prepares the call and sends its answer."""
    writer: type[ResponseWriter] | None = None
    """Writes answers in the endpoint's format. None: the endpoint does not answer with a completion."""


read_rendered_chat = partial(read_chat, answered=False)
"""Reads a chat request that gets no answer, so that its conversation may be complete."""

ENDPOINTS = (
    Endpoint(name="chat", path="/v1/chat/completions", read=read_chat, writer=ChatWriter),
    Endpoint(name="completions", path="/v1/completions", read=read_completion, writer=CompletionWriter),
    Endpoint(name="embeddings", path="/v1/embeddings", read=read_embedding),
    Endpoint(name="loglikelihood", path="/v1/loglikelihood", read=read_loglikelihood, respond=loglikelihood.respond),
    Endpoint(name="render", path="/v1/render", read=read_rendered_chat, respond=render.respond),
)
