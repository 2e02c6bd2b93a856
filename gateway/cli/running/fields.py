"""The fields of a request that ``gateway run`` sends without ``--send``. Other columns may be expected answers."""

from __future__ import annotations

from functools import cache
from typing import get_args

from gateway.backend.engines import ENGINES
from gateway.edge.endpoints.table import ENDPOINTS
from gateway.wire.request_fields import Sampling

ENGINE_FIELDS = frozenset(
    name for engine in ENGINES.values() for name in engine.sampling | engine.chat if "." not in name
)
"""The fields of engines that OpenAI's API does not have, such as ``top_k``."""


@cache
def fields_of(url: str) -> frozenset[str]:
    """Return the fields of a request to an endpoint. The fields of an unknown endpoint are those of all endpoints."""
    requests = {endpoint.path: endpoint.request for endpoint in ENDPOINTS}
    request = requests.get(url)
    if request is None:
        return frozenset().union(*map(fields_of, requests))
    models = get_args(request) or (request,)
    fields = frozenset(name for model in models for name in model.model_fields)
    return fields | ENGINE_FIELDS if any(issubclass(model, Sampling) for model in models) else fields
