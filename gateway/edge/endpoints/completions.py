"""``POST /v1/completions``."""

from __future__ import annotations

from gateway.calls.prepare import prepare
from gateway.edge.endpoints.answer import respond
from gateway.edge.endpoints.endpoint import Endpoint
from gateway.wire.requests import read_completion
from gateway.wire.responses import CompletionWriter

COMPLETIONS = Endpoint(
    name="completions",
    path="/v1/completions",
    read=read_completion,
    prepare=prepare,
    respond=respond,
    writer=CompletionWriter,
    id_prefix="cmpl",
)
