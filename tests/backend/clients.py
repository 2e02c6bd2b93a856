"""Which HTTP client do the tests use? Every backend test runs with both."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from gateway.backend.aio import AioClient
from gateway.backend.h1 import H1Client
from gateway.backend.http import HttpClient

CLIENTS: dict[str, Callable[[], HttpClient]] = {"h1": H1Client, "aiohttp": AioClient}
chosen: ContextVar[str] = ContextVar("client", default="h1")


def new_client() -> HttpClient:
    """A client of the kind that this run of the test is for."""
    return CLIENTS[chosen.get()]()
