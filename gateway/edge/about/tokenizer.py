"""``GET /tokenizer_info``, with answers in the format of vLLM."""

from __future__ import annotations

from gateway.calls.admission.access import authenticate, authorized_route, only_model
from gateway.calls.endpoints.tokenizing import tokenizer_info
from gateway.calls.service import GatewayState
from gateway.edge.http_request import HttpRequest


class TokenizerInfo:
    """The handler of ``/tokenizer_info``."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self.routes = {"/v1/tokenizer_info": ("GET", self.info), "/tokenizer_info": ("GET", self.info)}

    async def info(self, request: HttpRequest) -> None:
        """``GET /tokenizer_info``: the configuration of the model's tokenizer."""
        stack = self._state.stack
        caller = authenticate(stack, request)
        route = authorized_route(stack, caller, request.model or only_model(stack, caller))
        request.reply_json(200, await tokenizer_info(route))
