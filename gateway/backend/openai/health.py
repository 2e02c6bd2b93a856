"""Asks the server of a target whether it is healthy."""

from __future__ import annotations

import asyncio

from gateway.backend.http_client.client import HttpClient, HttpEndpoint
from gateway.backend.openai.base import open_endpoint
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import UpstreamError


class HealthProbe:
    """``GET`` of the health path of one target."""

    def __init__(self, target: TargetSpec, client: HttpClient, path: str, timeout: float) -> None:
        """``path`` is below the root of the target's address; ``timeout`` is in seconds."""
        self._target = target
        self._client = client
        self._path = path
        self._timeout = timeout
        self._endpoint: HttpEndpoint | None = None

    async def check(self) -> str:
        """The reason why the target is not healthy; empty if it is healthy."""
        try:
            async with asyncio.timeout(self._timeout):
                status = await self._status()
        except TimeoutError:
            return f"GET {self._path} was not answered within {self._timeout:g} s"
        except UpstreamError as error:
            return error.message
        return f"GET {self._path} was answered with status {status}" if status >= 400 else ""

    async def _status(self) -> int:
        if self._endpoint is None:
            root = self._target.url.rstrip("/").removesuffix("/v1")
            self._endpoint = open_endpoint(
                self._client, self._target, root + self._path, self._timeout, accept="*/*", method="GET"
            )
        http = await self._endpoint.post_idempotent(b"")
        try:
            return http.status
        finally:
            http.release()
