"""Which model may this client have? One answer for a model that does not exist and one out of reach."""

from __future__ import annotations

from gateway.assembly import Stack
from gateway.calls.route import Route
from gateway.config.snapshot import KeySpec
from gateway.core.errors import ModelNotFound
from gateway.wire.error_object import quoted


def reach(stack: Stack, key: KeySpec | None, name: str) -> Route:
    """The route of a model; ``ModelNotFound`` when there is none for this key, whatever the reason."""
    route = stack.routes.get(name)
    if route is None or not stack.keyring.opens(key, name):
        raise ModelNotFound(f"no model {quoted(name)}; GET /v1/models lists what there is", param="model")
    return route
