"""The tracers of the configurations so far."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gateway.config.schema.settings import GATEWAY
from gateway.config.snapshot import TracingSpec
from gateway.core.errors import ConfigError, Problem
from metatemplate.values.words import install_extra

if TYPE_CHECKING:
    from gateway.calls.tracing.spans import Tracing

VARIABLES = ("EXPORTER_OTLP_ENDPOINT", "EXPORTER_OTLP_TRACES_ENDPOINT", "TRACES_SAMPLER", "SERVICE_NAME")
"""Environment variables of OpenTelemetry, without ``OTEL_``, that give the same as a setting."""


class Tracers:
    """The tracers of the configurations so far. A reload that does not change ``tracing`` keeps the tracer."""

    def __init__(self) -> None:
        self._opened: dict[TracingSpec, Tracing] = {}

    def open(self, spec: TracingSpec) -> Tracing:
        """Return what makes the spans of a configuration.

        Raises ``ConfigError`` if the SDK is missing, or if an environment variable gives the same as a setting.
        """
        message = ", ".join([f"OTEL_{name}" for name in VARIABLES if os.environ.get(f"OTEL_{name}")])
        message = message and f"gives the same as environment variables; remove {message} from the environment"
        if not message and spec not in self._opened:
            try:
                from gateway.calls.tracing.exporter import open_tracer
                from gateway.calls.tracing.spans import Tracing

                self._opened[spec] = Tracing(open_tracer(spec))
            except ModuleNotFoundError as error:
                message = f"needs the package {error.name}; install it with: {install_extra('otel')}"
        if message:
            raise ConfigError((Problem(GATEWAY, 0, "tracing", message),))
        return self._opened[spec]
