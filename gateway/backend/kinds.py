"""The factory of each kind of backend: one row each.

The settings of each kind are in ``gateway/config/schema/backend_kinds.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from gateway.backend.embedded.backend import EmbeddedBackend
from gateway.backend.embedded.cache import EngineCache
from gateway.backend.engines import EngineCapabilities
from gateway.backend.http_client.client import HttpClient
from gateway.backend.litellm.backend import LiteLLMBackend
from gateway.backend.openai.chat import ChatBackend
from gateway.backend.openai.completions import CompletionsBackend
from gateway.backend.scripted import ScriptedBackend
from gateway.config.snapshot import TargetSpec
from gateway.core.exchange import Backend


class TargetBackend(Backend, Protocol):
    """The backend of one target."""

    @property
    def capabilities(self) -> EngineCapabilities:
        """The input that its engine accepts in one call."""
        ...


class BackendResources(Protocol):
    """The resources that all backends of a process share; they outlive a reload."""

    @property
    def client(self) -> HttpClient:
        """The HTTP client and its connections."""
        ...

    @property
    def engines(self) -> EngineCache:
        """The models loaded into this process."""
        ...


BackendFactory = Callable[[TargetSpec, BackendResources, float], TargetBackend]
"""(target, shared resources, connect timeout in seconds) → backend. Raises ``ConfigError``."""

BACKEND_FACTORIES: Mapping[str, BackendFactory] = MappingProxyType(
    {
        "completions": lambda target, shared, timeout: CompletionsBackend(target, shared.client, timeout),
        "chat": lambda target, shared, timeout: ChatBackend(target, shared.client, timeout),
        "litellm": lambda target, shared, timeout: LiteLLMBackend(target),
        "embedded": lambda target, shared, timeout: EmbeddedBackend(target, shared.engines.get(target)),
        "scripted": lambda target, shared, timeout: ScriptedBackend.from_target(target),
    }
)
"""Value of ``speaks`` → its factory."""
