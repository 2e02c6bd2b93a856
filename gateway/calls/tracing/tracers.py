"""The tracers of the configurations so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.config.schema.settings import GATEWAY
from gateway.config.snapshot import TracingSpec
from gateway.core.errors import ConfigError, Problem
from metatemplate.values.words import install_extra

if TYPE_CHECKING:
    from gateway.calls.tracing.spans import Tracing


class Tracers:
    """The tracers of the configurations so far. A reload that does not change ``tracing`` keeps the tracer."""

    def __init__(self) -> None:
        self._opened: dict[TracingSpec, Tracing] = {}

    def open(self, spec: TracingSpec) -> Tracing:
        """Return what makes the spans of a configuration. Raises ``ConfigError`` if the SDK is missing."""
        if spec not in self._opened:
            try:
                from gateway.calls.tracing.exporter import open_tracer
                from gateway.calls.tracing.spans import Tracing
            except ModuleNotFoundError as error:
                message = f"needs the package {error.name}; install it with: {install_extra('otel')}"
                raise ConfigError((Problem(GATEWAY, 0, "tracing", message),)) from error
            self._opened[spec] = Tracing(open_tracer(spec))
        return self._opened[spec]
