"""``/health``; ``/metrics`` in Prometheus' text format, and ``/status``, which show the names of models and targets."""

from __future__ import annotations

from gateway.calls.admission.access import authenticate
from gateway.calls.service import GatewayState
from gateway.core.errors import RouteNotFound
from gateway.edge.http_request import HttpRequest
from gateway.telemetry.metrics import CONTENT_TYPE

HEADERS = f"content-type: {CONTENT_TYPE}\r\n".encode("ascii")


HEALTH_PATHS = frozenset({"/health", "/health/live", "/health/ready"})
"""These paths accept every Host header, because probes use IP addresses and the answer contains only the state."""


class Health:
    """The handlers of ``/health``."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self.routes = {
            "/health": ("GET", self.live),
            "/health/live": ("GET", self.live),
            "/health/ready": ("GET", self.ready),
        }

    async def live(self, request: HttpRequest) -> None:
        """``GET /health`` and ``/health/live``: always 200."""
        request.reply_json(200, {"status": "ok"})

    async def ready(self, request: HttpRequest) -> None:
        """``GET /health/ready``: 200 until the process is asked to end, then 503."""
        if self._state.ending:
            request.reply_json(503, {"status": "draining"})
        else:
            request.reply_json(200, {"status": "ready"})


class Monitoring:
    """The handlers of ``/metrics`` and ``/status``."""

    def __init__(self, state: GatewayState, *, keyed: bool) -> None:
        """``keyed``: True if clients must send a key when keys are configured."""
        self._state = state
        self._keyed = keyed
        self.routes = {"/metrics": ("GET", self.metrics), "/status": ("GET", self.status)}

    async def metrics(self, request: HttpRequest) -> None:
        """``GET /metrics``: the metrics of all workers together."""
        self._authorize(request)
        request.reply(200, HEADERS, await self._state.exposition())

    async def status(self, request: HttpRequest) -> None:
        """``GET /status``: what the gateway serves, targets that calls avoid, the store, and the last reload."""
        self._authorize(request)
        request.reply_json(200, await self._state.status())

    def _authorize(self, request: HttpRequest) -> None:
        if self._keyed and authenticate(self._state.stack, request).models is not None:
            raise RouteNotFound("this path shows the names of all models; send a key that allows all models")
