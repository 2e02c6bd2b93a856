"""The fields of a request that ``gateway run`` sends without ``--send``. Other columns may be expected answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args

from gateway.backend.engines import ENGINES
from gateway.edge.endpoints.table import ENDPOINTS
from gateway.policy.admit.media import FIELDS, PARTS
from gateway.template.roles import FALLBACK_FIELD
from gateway.wire.request_fields import ChatMessage, Sampling, TextPart

REQUESTS: Mapping[str, Any] = {endpoint.path: endpoint.request for endpoint in ENDPOINTS}
"""The path of an endpoint → the type of its request."""
USUAL_COLUMNS = frozenset({"documents", "grammar", "json_schema", "regex"})
"""Fields of engines that are also usual names of columns in a dataset. They are sent only with ``--send``."""
ENGINE_FIELDS = (
    frozenset(name for engine in ENGINES.values() for name in engine.sampling | engine.chat if "." not in name)
    - USUAL_COLUMNS
)
"""The fields of engines that OpenAI's API does not have, such as ``top_k``."""
MESSAGE_FIELDS = (
    frozenset({"cache_control", "partial", "prefix", "provider_specific_fields", FALLBACK_FIELD})
    | FIELDS.keys()
    | ChatMessage.model_fields.keys()
)
"""The fields of a message: those that the gateway reads, those of answers, and those of providers."""
PART_FIELDS = frozenset({"cache_control", "detail", "file_id", "uuid"}).union(TextPart.model_fields, *PARTS.values())
"""The fields of a content part of any type."""


@cache
def fields_of(url: str) -> frozenset[str]:
    """Return the fields of a request to the endpoint with the path ``url``, a key of ``REQUESTS``."""
    request = REQUESTS[url]
    models = get_args(request) or (request,)
    fields = frozenset(name for model in models for name in model.model_fields)
    return fields | ENGINE_FIELDS if any(issubclass(model, Sampling) for model in models) else fields


def unknown_in_messages(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield place and name of each unknown key in the messages of a request and in their content parts."""
    candidates = body.get("candidates")
    conversations = {name: body.get(name) for name in ("messages", "context")}
    if isinstance(candidates, dict):
        conversations |= {f"candidates.{label}": value for label, value in candidates.items()}
    for field, messages in conversations.items():
        for place, message in _objects(field, messages):
            yield from [(place, name) for name in message if name not in MESSAGE_FIELDS]
            for inner, part in _objects(f"{place}.content", message.get("content")):
                yield from [(inner, name) for name in part if name not in PART_FIELDS]


def _objects(place: str, items: object) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects of a list with their places. Other items are left to the checks of the gateway."""
    if not isinstance(items, list):
        return []
    return [(f"{place}[{number}]", item) for number, item in enumerate(items) if isinstance(item, dict)]
