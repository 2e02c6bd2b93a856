"""An OpenAI-compatible gateway that shows every local model the exact prompt it was trained on.

The public names are imported on first use. ``docs/library.md`` has examples of their use.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from metatemplate.version import VERSION as __version__

if TYPE_CHECKING:
    from gateway.calls.python_api import PromptTemplate, RenderedPrompt, count_tokens, load_template
    from gateway.core.errors import ConfigError, GatewayError
    from gateway.server.application import create_app
    from gateway.server.program import Gateway
    from metatemplate.library import ParsedAnswer as Answer

_PLACES = {
    "Answer": "metatemplate.library:ParsedAnswer",
    "ConfigError": "gateway.core.errors:ConfigError",
    "Gateway": "gateway.server.program:Gateway",
    "GatewayError": "gateway.core.errors:GatewayError",
    "PromptTemplate": "gateway.calls.python_api:PromptTemplate",
    "RenderedPrompt": "gateway.calls.python_api:RenderedPrompt",
    "count_tokens": "gateway.calls.python_api:count_tokens",
    "create_app": "gateway.server.application:create_app",
    "load_template": "gateway.calls.python_api:load_template",
}

__all__ = [
    "Answer",
    "ConfigError",
    "Gateway",
    "GatewayError",
    "PromptTemplate",
    "RenderedPrompt",
    "__version__",
    "count_tokens",
    "create_app",
    "load_template",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(_PLACES[name])


def __dir__() -> list[str]:
    return __all__
