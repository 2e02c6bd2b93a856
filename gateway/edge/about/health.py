"""``/health``: liveness and readiness."""

from __future__ import annotations

from gateway.edge.http_request import HttpRequest
from gateway.edge.state import GatewayState

PATHS = frozenset({"/health", "/health/live", "/health/ready"})
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
