"""The factory of each kind of backend, one row for each kind.

A factory imports the backend's module, so a gateway has only the kinds that its configuration names. The settings of
each kind are in ``gateway/config/schema/backend_kinds.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from gateway.backend.engines import EngineCapabilities
from gateway.backend.http_client.client import HttpClient
from gateway.config.snapshot import TargetSpec
from gateway.core.exchange import Backend

if TYPE_CHECKING:
    from gateway.backend.embedded.engine import EmbeddedEngine


class TargetBackend(Backend, Protocol):
    """The backend of one target."""

    capabilities: EngineCapabilities
    """The capabilities of the target's engine."""


LoadEngine = Callable[[TargetSpec], "EmbeddedEngine"]
"""Loads the engine of a target that is computed in this process."""
BackendFactory = Callable[[TargetSpec, HttpClient, LoadEngine, float], TargetBackend]
"""(target, HTTP client, loader of engines, connect timeout in seconds) → backend. Raises ``ConfigError``."""


def _of_server(backend: str) -> BackendFactory:
    return lambda target, client, load, timeout: resolve_name(backend)(target, client, timeout)


def _of_target(backend: str) -> BackendFactory:
    return lambda target, client, load, timeout: resolve_name(backend)(target)


def _of_engine(backend: str) -> BackendFactory:
    return lambda target, client, load, timeout: resolve_name(backend)(target, load(target))


BACKEND_FACTORIES: Mapping[str, BackendFactory] = MappingProxyType(
    {
        "completions": _of_server("gateway.backend.openai.completions:CompletionsBackend"),
        "chat": _of_server("gateway.backend.openai.chat:ChatBackend"),
        "litellm": _of_target("gateway.backend.litellm.backend:LiteLLMBackend"),
        "embedded": _of_engine("gateway.backend.embedded.backend:EmbeddedBackend"),
        "scripted": _of_target("gateway.backend.scripted:ScriptedBackend.from_target"),
        "replay": _of_target("gateway.backend.replay:ReplayBackend"),
    }
)
"""Value of ``speaks`` → factory."""
