"""``/metrics`` in Prometheus' text format."""

from __future__ import annotations

from gateway.core.errors import RouteNotFound
from gateway.edge.authorize import authenticate
from gateway.edge.http_request import HttpRequest
from gateway.edge.state import GatewayState
from gateway.telemetry.metrics import CONTENT_TYPE

HEADERS = f"content-type: {CONTENT_TYPE}\r\n".encode("ascii")


class MetricsEndpoint:
    """The handler of ``/metrics``."""

    def __init__(self, state: GatewayState, *, keyed: bool) -> None:
        """``keyed``: True if clients must send a key when keys are configured."""
        self._state = state
        self._keyed = keyed
        self.routes = {"/metrics": ("GET", self.metrics)}

    async def metrics(self, request: HttpRequest) -> None:
        """``GET /metrics``: the metrics of all workers together."""
        if self._keyed:
            key = authenticate(self._state.stack, request)
            if key is not None and "*" not in key.models:
                raise RouteNotFound("the metrics contain the names of all models; send a key that allows all models")
        request.reply(200, HEADERS, await self._state.exposition())
