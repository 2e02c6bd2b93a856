"""Health checks of the servers of targets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.backend.http_client.client import HttpClient, server_root
from gateway.backend.openai.base import open_endpoint
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import UpstreamError


@dataclass(slots=True)
class HealthProbe:
    """Sends ``GET`` to the health path of one target."""

    target: TargetSpec
    client: HttpClient
    path: str
    """The path below the root of the target's address."""
    timeout: float
    """Seconds that one check may take."""
    policy: str
    """The policy that has ``path``, for messages."""

    async def check(self) -> str:
        """Return the reason why the target is not healthy; empty if the target is healthy."""
        try:
            async with asyncio.timeout(self.timeout):
                status = await self._status()
        except TimeoutError:
            return f"GET {urlsplit(self._url).path} was not answered within {self.timeout:g} s"
        except UpstreamError as error:
            return error.message
        if status < 400:
            return ""
        hint = f"; check delivery.health_check.path in policy {self.policy}" if status in (404, 405) else ""
        return f"GET {urlsplit(self._url).path} was answered with status {status}{hint}"

    @property
    def _url(self) -> str:
        return server_root(self.target.url) + self.path

    async def _status(self) -> int:
        endpoint = open_endpoint(self.client, self.target, self._url, self.timeout, accept="*/*", method="GET")
        http = await endpoint.post_idempotent(b"")
        try:
            return http.status
        finally:
            http.release()
