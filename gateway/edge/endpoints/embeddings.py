"""``POST /v1/embeddings``."""

from __future__ import annotations

from gateway.calls.prepare import prepare
from gateway.edge.endpoints.answer import respond
from gateway.edge.endpoints.endpoint import Endpoint
from gateway.wire.requests import read_embedding

EMBEDDINGS = Endpoint(
    name="embeddings",
    path="/v1/embeddings",
    read=read_embedding,
    prepare=prepare,
    respond=respond,
)
