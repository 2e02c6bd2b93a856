"""``/openapi.json``: the OpenAPI document of all paths, generated from the models that check the requests.

The schema of an answer lists the keys that every answer of a path has; most answers have more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from gateway.calls.endpoints.table import Endpoint, has_tokenizers, request_type, served
from gateway.edge.http_request import JSON_HEADER, HttpRequest
from gateway.wire.body_schemas import body_schemas
from metatemplate.version import VERSION

SCHEMAS: Mapping[str, Mapping[str, Any]] = orjson.loads(files(__package__).joinpath("answers.json").read_bytes())
"""``answers``: path → the schema of its JSON answer with status 200; ``schemas``: the schemas to which these refer."""

SUMMARIES = {
    "/": "A page for people: the models, the paths and a request to try",
    "/version": "The version of the gateway",
    "/openapi.json": "This document",
    "/favicon.ico": "The icon that browsers request with every page",
    "/v1/models": "The models that the client may use",
    "/v1/models/{model}": "One model",
    **dict.fromkeys(
        ("/{model}/v1/tokenizer_info", "/{model}/tokenizer_info"),
        "The configuration of the model's tokenizer; without the model in the path if there is only one",
    ),
    **dict.fromkeys(("/health", "/health/live"), "200 while the process runs"),
    "/health/ready": "200 while calls are accepted, 503 during a shutdown",
    "/metrics": "Metrics in Prometheus' text format; on the admin listener if there is one",
    "/status": "The configuration in use, its targets, the store and the last reload; beside /metrics",
}
"""GET path → summary."""

MEDIA_TYPES = {"/": "text/html", "/favicon.ico": "image/svg+xml", "/metrics": "text/plain"}
"""GET path → media type of the answer, if it is not JSON."""

DESCRIPTION = (
    "Every /v1 path also exists as /{model}/v1/…; with such a path, the body may leave out the model. /run/NAME "
    "before such a path names a run, for recordings. If client keys are configured, a request needs a key."
)


def summaries(names: Sequence[str]) -> dict[str, str]:
    """Return GET path → summary for all paths that are served. ``names``: as in ``server.endpoints``."""
    return {path: summary for path, summary in SUMMARIES.items() if "tokenizer" not in path or has_tokenizers(names)}


@cache
def document(names: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the OpenAPI document without the address of the server. ``names``: as in ``server.endpoints``."""
    rows = [(path, endpoint) for endpoint in served(names) for path in endpoint.paths]
    bodies, schemas = body_schemas({path: request_type(row) for path, row in rows}, "#/components/schemas/{model}")
    paths: dict[str, Any] = {path: {"get": _get(path, summary)} for path, summary in summaries(names).items()}
    paths |= {path: {"post": _post(path, endpoint, bodies[path])} for path, endpoint in rows}
    return {
        "openapi": "3.1.0",
        "info": {"title": "meta-gateway", "version": VERSION, "description": DESCRIPTION},
        "security": [{}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": {**schemas, **SCHEMAS["schemas"]},
            "responses": {
                "Error": {
                    "description": "The request failed",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


async def openapi(names: tuple[str, ...], request: HttpRequest) -> None:
    """``GET /openapi.json``. A request needs no key, because the document contains no names of models.

    ``names``: as in ``server.endpoints``.
    """
    servers = [{"url": request.root_path or "/"}]
    request.reply(200, JSON_HEADER, orjson.dumps({**await asyncio.to_thread(document, names), "servers": servers}))


def _get(path: str, summary: str) -> dict[str, Any]:
    text = {MEDIA_TYPES[path]: {"schema": {"type": "string"}}} if path in MEDIA_TYPES else {}
    operation = {"summary": summary, "responses": _responses(text or _json_answer(path))}
    if "{model}" in path:
        model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
        return {**operation, "parameters": [model]}
    return operation


def _post(path: str, endpoint: Endpoint, body: Any) -> dict[str, Any]:
    streamed = {"text/event-stream": {"schema": {"type": "string"}}} if endpoint.streams else {}
    return {
        "summary": endpoint.summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": _responses({**_json_answer(path), **streamed}),
    }


def _json_answer(path: str) -> dict[str, Any]:
    return {"application/json": {"schema": SCHEMAS["answers"][path]}}


def _responses(content: dict[str, Any]) -> dict[str, Any]:
    return {
        "200": {"description": "The answer", "content": content},
        "default": {"$ref": "#/components/responses/Error"},
    }
