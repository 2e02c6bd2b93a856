"""Which models are there, and is the gateway well? The endpoints that run no model."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from gateway.assembly import Stack
from gateway.edge.authorize import reach
from gateway.edge.http_request import HttpRequest
from gateway.edge.replies import send_json
from gateway.policy.admit.api_keys import allows
from gateway.runtime import Runtime
from gateway.telemetry.metrics import CONTENT_TYPE

MODEL = "/v1/models/"
"""What stands before the name in a model's own path."""


METRICS = f"content-type: {CONTENT_TYPE}\r\n".encode("ascii")


class Catalogue:
    """``/v1/models``, ``/health…`` and ``/metrics``."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def models(self, asked: HttpRequest) -> None:
        """``GET /v1/models``: what this client may call."""
        stack = self._stack()
        key = stack.keyring.admit(asked.header("authorization"))
        if asked.model is not None:
            reach(stack, key, asked.model)
        names = [name for name in stack.routes if allows(key, name)]
        send_json(asked, 200, {"object": "list", "data": [self._card(name) for name in names]})

    async def model(self, asked: HttpRequest) -> None:
        """``GET /v1/models/{id}``."""
        stack = self._stack()
        key = stack.keyring.admit(asked.header("authorization"))
        if asked.model is not None:
            reach(stack, key, asked.model)
        name = unquote(asked.path.removeprefix(MODEL))
        reach(stack, key, name)
        send_json(asked, 200, self._card(name))

    async def live(self, asked: HttpRequest) -> None:
        """``GET /health`` and ``/health/live``: the process answers."""
        send_json(asked, 200, {"status": "ok"})

    async def ready(self, asked: HttpRequest) -> None:
        """``GET /health/ready``: send traffic here, or not (draining)."""
        ready = self._runtime.stack is not None and not self._runtime.draining
        send_json(asked, 200 if ready else 503, {"status": "ready" if ready else "draining"})

    async def keyed_metrics(self, asked: HttpRequest) -> None:
        """``metrics`` on the listener of the clients: with one of their keys, where there are any."""
        self._stack().keyring.admit(asked.header("authorization"))
        await self.metrics(asked)

    async def metrics(self, asked: HttpRequest) -> None:
        """``GET /metrics`` in Prometheus' text format."""
        asked.reply(200, METRICS, await self._runtime.exposition())

    def _stack(self) -> Stack:
        assert self._runtime.stack is not None
        return self._runtime.stack

    def _card(self, name: str) -> dict[str, Any]:
        card: dict[str, Any] = {
            "id": name,
            "object": "model",
            "created": self._runtime.born,
            "owned_by": "meta-gateway",
        }
        route = self._stack().routes[name]
        if route.spec.description:
            card["description"] = route.spec.description
        length = route.engine_tokenizer.length if route.engine_tokenizer is not None else route.max_model_len
        if length is not None:
            card["max_model_len"] = length
        return card
