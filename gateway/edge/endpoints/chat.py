"""``POST /v1/chat/completions``."""

from __future__ import annotations

from gateway.calls.prepare import prepare
from gateway.edge.endpoints.answer import respond
from gateway.edge.endpoints.endpoint import Endpoint
from gateway.wire.requests import read_chat
from gateway.wire.responses import ChatWriter

CHAT = Endpoint(
    name="chat",
    path="/v1/chat/completions",
    read=read_chat,
    prepare=prepare,
    respond=respond,
    writer=ChatWriter,
    id_prefix="chatcmpl",
)
