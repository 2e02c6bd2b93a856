"""The JSON schemas of request bodies, generated from the models that check the requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter


def body_schemas(bodies: Mapping[str, Any], reference: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return name → JSON schema for each body, and the definitions to which these schemas refer.

    ``bodies``: name → model, or union of models. ``reference``: the reference to a definition, such as ``#/{model}``.
    """
    inputs: list[tuple[str, Any, TypeAdapter[Any]]] = [
        (name, "validation", TypeAdapter(body)) for name, body in bodies.items()
    ]
    schemas, definitions = TypeAdapter.json_schemas(inputs, ref_template=reference)
    return {name: schema for (name, _), schema in schemas.items()}, definitions["$defs"]
