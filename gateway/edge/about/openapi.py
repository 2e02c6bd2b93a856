"""``/openapi.json``: the OpenAPI document of all paths.

``openapi.json`` beside this file has the paths with their answers. The schema of an answer lists the keys that every
answer of the path has. The schemas of request bodies are those of the models that check the requests.
"""

from __future__ import annotations

import asyncio
from functools import cache
from importlib.resources import files
from pkgutil import resolve_name
from typing import Any

import orjson

from gateway.calls.endpoints.table import has_tokenizers, served
from gateway.edge.http_request import JSON_HEADER, HttpRequest
from gateway.wire.body_schemas import body_schemas
from metatemplate.version import VERSION


def without_bodies(names: tuple[str, ...]) -> dict[str, Any]:
    """Return the document of the served paths, without request bodies. ``names``: as in ``server.endpoints``."""
    document: dict[str, Any] = orjson.loads(files(__package__).joinpath("openapi.json").read_bytes())
    posts = {path: endpoint for endpoint in served(names) for path in endpoint.paths}
    document["paths"] = {
        path: operations
        for path, operations in document["paths"].items()
        if (path in posts if "post" in operations else "tokenizer" not in path or has_tokenizers(names))
    }
    for path, endpoint in posts.items():
        document["paths"][path]["post"]["summary"] = endpoint.summary
    document["info"]["version"] = VERSION
    return document


@cache
def document(names: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the document without the address of the server. ``names``: as in ``server.endpoints``."""
    found = without_bodies(names)
    types = {path: resolve_name(endpoint.request) for endpoint in served(names) for path in endpoint.paths}
    bodies, schemas = body_schemas(types, "#/components/schemas/{model}")
    for path, body in bodies.items():
        content = {"application/json": {"schema": body}}
        found["paths"][path]["post"]["requestBody"] = {"required": True, "content": content}
    found["components"]["schemas"] |= schemas
    return found


async def openapi(names: tuple[str, ...], request: HttpRequest) -> None:
    """``GET /openapi.json``. A request needs no key, because the document contains no names of models.

    ``names``: as in ``server.endpoints``.
    """
    servers = [{"url": request.root_path or "/"}]
    request.reply(200, JSON_HEADER, orjson.dumps({**await asyncio.to_thread(document, names), "servers": servers}))
