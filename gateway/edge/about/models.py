"""``/v1/models``: the models that a client may call; ``/tokenizer_info``: the tokenizer of one, as vLLM answers."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any
from urllib.parse import unquote

from gateway.calls.admission.access import authenticate, authorized_route, only_model
from gateway.calls.endpoints.table import has_tokenizers
from gateway.calls.route import Route
from gateway.calls.service import GatewayState
from gateway.edge.http_request import HttpRequest

MODEL_PATH = "/v1/models/"
"""The path of one model, without the name of the model. The name may contain slashes."""


class Models:
    """The handlers of ``/v1/models``."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self.routes = {"/v1/models": ("GET", self.list), MODEL_PATH: ("GET", self.retrieve)}
        if has_tokenizers(state.stack.snapshot.server.endpoints):
            self._tokenizer_info = resolve_name("gateway.calls.endpoints.tokenizing:tokenizer_info")
            self.routes |= dict.fromkeys(("/v1/tokenizer_info", "/tokenizer_info"), ("GET", self.tokenizer))

    async def list(self, request: HttpRequest) -> None:
        """``GET /v1/models``: the models that the client's key allows."""
        stack = self._state.stack
        caller = authenticate(stack, request)
        cards = [self._card(name, route) for name, route in stack.routes.items() if caller.may_use(name)]
        request.reply_json(200, {"object": "list", "data": cards})

    async def retrieve(self, request: HttpRequest) -> None:
        """``GET /v1/models/{id}``: one model. The path without a name is the list."""
        if request.path == MODEL_PATH:
            await self.list(request)
            return
        stack = self._state.stack
        caller = authenticate(stack, request)
        name = unquote(request.path.removeprefix(MODEL_PATH))
        request.reply_json(200, self._card(name, authorized_route(stack, caller, name)))

    async def tokenizer(self, request: HttpRequest) -> None:
        """``GET /tokenizer_info``: the configuration of the model's tokenizer."""
        stack = self._state.stack
        caller = authenticate(stack, request)
        route = authorized_route(stack, caller, request.model or only_model(stack, caller))
        request.reply_json(200, await self._tokenizer_info(route))

    def _card(self, name: str, route: Route) -> dict[str, Any]:
        card: dict[str, Any] = {
            "id": name,
            "object": "model",
            "created": self._state.started_at,
            "owned_by": "meta-gateway",
        }
        if route.spec.description:
            card["description"] = route.spec.description
        if route.context_length is not None:
            card["max_model_len"] = route.context_length
        return card
