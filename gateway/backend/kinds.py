"""The factory of each kind of backend, one row for each kind.

The settings of each kind are in ``gateway/config/schema/backend_kinds.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gateway.backend.embedded.backend import EmbeddedBackend
from gateway.backend.embedded.cache import EngineCache
from gateway.backend.http_client.client import HttpClient
from gateway.backend.litellm.backend import LiteLLMBackend
from gateway.backend.openai.chat import ChatBackend
from gateway.backend.openai.completions import CompletionsBackend
from gateway.backend.replay import ReplayBackend
from gateway.backend.scripted import ScriptedBackend
from gateway.config.snapshot import TargetSpec

TargetBackend = CompletionsBackend | ChatBackend | LiteLLMBackend | EmbeddedBackend | ScriptedBackend | ReplayBackend
"""The backend of one target, with the ``capabilities`` of the target's engine."""

BackendFactory = Callable[[TargetSpec, HttpClient, EngineCache, float], TargetBackend]
"""(target, HTTP client, loaded models, connect timeout in seconds) → backend. Raises ``ConfigError``."""

BACKEND_FACTORIES: Mapping[str, BackendFactory] = MappingProxyType(
    {
        "completions": lambda target, client, engines, timeout: CompletionsBackend(target, client, timeout),
        "chat": lambda target, client, engines, timeout: ChatBackend(target, client, timeout),
        "litellm": lambda target, client, engines, timeout: LiteLLMBackend(target),
        "embedded": lambda target, client, engines, timeout: EmbeddedBackend(target, engines.get(target)),
        "scripted": lambda target, client, engines, timeout: ScriptedBackend.from_target(target),
        "replay": lambda target, client, engines, timeout: ReplayBackend(target),
    }
)
"""Value of ``speaks`` → factory."""
