"""An OpenAI-compatible gateway that shows every local model the exact prompt it was trained on.

The public names are imported on first use. ``docs/library.md`` has examples of their use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metatemplate.version import VERSION as __version__

if TYPE_CHECKING:
    from gateway.calls.python_api import Answer, PromptTemplate, RenderedPrompt, count_tokens, load_template
    from gateway.core.errors import ConfigError, GatewayError
    from gateway.server.application import create_app
    from gateway.server.program import Gateway

_MODULES = {
    "Answer": "gateway.calls.python_api",
    "ConfigError": "gateway.core.errors",
    "Gateway": "gateway.server.program",
    "GatewayError": "gateway.core.errors",
    "PromptTemplate": "gateway.calls.python_api",
    "RenderedPrompt": "gateway.calls.python_api",
    "count_tokens": "gateway.calls.python_api",
    "create_app": "gateway.server.application",
    "load_template": "gateway.calls.python_api",
}

__all__ = [
    "Answer", "ConfigError", "Gateway", "GatewayError", "PromptTemplate", "RenderedPrompt", "__version__",
    "count_tokens", "create_app", "load_template",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
