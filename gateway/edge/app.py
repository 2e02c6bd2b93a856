"""The table of paths, and the errors of requests that have no handler."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from urllib.parse import unquote

from gateway.calls.admission.access import RUN_HEADER, base_url_hint, checked_run
from gateway.calls.endpoints.cancellation import ClientGone
from gateway.calls.endpoints.sink import NO_FIELDS, HeaderFields
from gateway.calls.endpoints.table import BY_PATH, LoadedEndpoint, load, served
from gateway.calls.service import GatewayState, Service
from gateway.calls.timeline import UNKNOWN_MODEL
from gateway.config.sections.server import is_loopback
from gateway.core.errors import GatewayError, InvalidValue, MethodNotAllowed, RouteNotFound
from gateway.edge.about.models import MODEL_PATH, Models
from gateway.edge.about.monitoring import HEALTH_PATHS, Health, Monitoring
from gateway.edge.about.openapi import openapi
from gateway.edge.about.version import ICON_ROUTES, version
from gateway.edge.host_header import HostGuard
from gateway.edge.http_request import HttpRequest
from gateway.telemetry.call_log import log_call
from gateway.telemetry.record import Record
from metatemplate.values.words import closest, quoted

LOG = logging.getLogger("gateway.edge")

OTHER = "other"
"""The value of the label ``endpoint`` for a refused request whose path is not in ``ENDPOINTS``."""
TOKENIZER_PATHS = ("/tokenize", "/detokenize", "/tokenizer_info")
"""The paths that vLLM has outside ``/v1``."""
VIEWER_PATH = "/viewer"
"""The path of the viewer, and of all its pages below.

A model's name may begin so: ``/viewer/v1/…`` and ``/viewer/tokenize`` are paths of the model.
"""
RUN_PATH = "/run/"
"""The beginning of the paths that name a run. No model has such a name."""
OTHER_APIS = {"/v1/messages": "Anthropic", "/api/chat": "Ollama", "/api/generate": "Ollama"}
"""Path of another API → the name of the API."""
NOT_SERVED = {
    "/v1/responses/": "the gateway stores no responses; keep the answer of POST /v1/responses",
    **dict.fromkeys(("/v1/files", "/v1/batches"), "the gateway stores no files; gateway run sends a file of requests"),
    **dict.fromkeys(
        (
            "/v1/images/",
            "/v1/audio/",
            "/v1/moderations",
            "/v1/fine_tuning/",
            "/v1/assistants",
            "/v1/threads",
            "/v1/vector_stores",
            "/v1/realtime",
        ),
        "this gateway does not have this part of OpenAI's API; GET / lists all paths",
    ),
}
"""Beginning of a path of OpenAI's API that the gateway does not have → what to do."""

Handler = Callable[[HttpRequest], Awaitable[None]]
Routes = Mapping[str, tuple[str, Handler]]
"""Path → (method, handler). A GET route also answers HEAD. ``MODEL_PATH`` is a prefix of many paths."""


class App:
    """Calls the handler for the path of each request. Our own HTTP server and the ASGI adapter call the ``App``."""

    def __init__(self, state: GatewayState, *, admin: bool = False, viewer: Handler | None = None) -> None:
        """``admin``: True for the second listener, which serves only metrics, status and health.

        ``viewer``: answers the requests for ``/`` and for the pages below ``/viewer``; None: there are no pages.
        """
        server = state.stack.snapshot.server
        self._state = state
        self._viewer = viewer
        self._host_guard = HostGuard(replace(server, allowed_hosts=("*",)) if admin else server)
        admin_routes = {**Health(state).routes, **Monitoring(state, keyed=False).routes}
        pages: Routes = {} if viewer is None else {"/": ("GET", viewer)}
        self.routes: Routes = {**(admin_routes if admin else _public_routes(state)), **pages, **ICON_ROUTES}

    async def __call__(self, request: HttpRequest) -> None:
        """Answer one request; every failure becomes an error response or closes the connection."""
        try:
            if request.headers.get(b"host") not in self._host_guard.accepted and request.path not in HEALTH_PATHS:
                self._host_guard.check(request)
            if b"origin" in request.headers and self._state.stack.snapshot.server.cors.origins:
                from gateway.edge.cors import add_extra_headers  # imported with the configuration

                if add_extra_headers(request, self._state.stack.snapshot.server):
                    return
            method, handler = self.routes.get(request.path) or self._find(request)
            if request.method == method or (request.method == "HEAD" and method == "GET"):
                await handler(request)
            else:
                # RFC 9110, 15.5.6: the answer names the allowed method.
                error = MethodNotAllowed(f"this path accepts only {method} requests")
                self._refuse(request, error, ((b"allow",), (method.encode("ascii"),)))
        except ClientGone:
            pass
        except GatewayError as error:
            self._refuse(request, error)
        except Exception:  # a bug: log the traceback, and answer with status 500
            LOG.exception("internal error in request %s", request.request_id)
            self._refuse(request, GatewayError("internal error; the gateway's log has the details"))
        finally:
            if not request.complete:
                request.abort()

    def _refuse(self, request: HttpRequest, error: GatewayError, fields: HeaderFields = NO_FIELDS) -> None:
        """Send the error response, count it and log it. If an answer has begun, send nothing.

        ``Service`` does the same for the requests of its endpoint.
        """
        if not request.status:
            request.send_error(error, fields)
        self._record(error, request.request_id, request.received, request.path)

    def refused_input(self, error: GatewayError, request_id: str) -> None:
        """Count and log an error for bytes that are not a complete HTTP request. The connection has sent the error."""
        self._record(error, request_id, time.monotonic(), "")

    def _record(self, error: GatewayError, request_id: str, received: float, path: str) -> None:
        seconds, refusal = time.monotonic() - received, error.log_message or error.message
        about = (request_id, OTHER, UNKNOWN_MODEL, error.code, error.status, False, seconds)
        record = Record(*about, overhead=seconds, path=path, refusal=refusal)
        self._state.metrics.record(record)
        log_call(record)

    def _find(self, request: HttpRequest) -> tuple[str, Handler]:
        """Return the route of a path that starts with ``MODEL_PATH`` or with the name of a model (``/{model}/v1/…``).

        Before these, the path may name a run. The handlers check the client's key first, and then whether the model
        exists.
        """
        if request.path.startswith(RUN_PATH):
            _take_run(request)
        row = self._route(request.path) or self._viewer_route(request)
        if row is not None:
            return row
        name, slash, rest = request.path[1:].partition("/v1/")
        if not slash:  # the paths of tokenizers also exist without ``/v1``
            name, slash, rest = request.path[1:].rpartition("/")
            slash = slash if f"/{rest}" in TOKENIZER_PATHS else ""
        row = self._route(f"/v1/{rest}") if name and slash else None
        if row is None:
            raise RouteNotFound(f"unknown path{self._hint(request)}")
        request.path = f"/v1/{rest}"
        request.model = unquote(name)
        return row

    def _route(self, path: str) -> tuple[str, Handler] | None:
        return self.routes.get(MODEL_PATH if path.startswith(MODEL_PATH) else path)

    def _viewer_route(self, request: HttpRequest) -> tuple[str, Handler] | None:
        """Return the route of a page. The viewer itself checks the method."""
        below = request.path.removeprefix(VIEWER_PATH)
        is_page = (
            below != request.path and below[:1] in ("", "/") and "/v1/" not in below and below not in TOKENIZER_PATHS
        )
        return (request.method, self._viewer) if is_page and self._viewer is not None else None

    def _hint(self, request: HttpRequest) -> str:
        """Return the part of the error message that names the path which was probably meant."""
        path = request.path
        is_main = "/v1/models" in self.routes
        last = f"/v1/{path.rpartition('/v1/')[2]}" if "/v1/" in path else f"/v1/{path.rpartition('/')[2]}"
        if is_main and last in BY_PATH and last not in self.routes:
            return f": server.endpoints does not list {BY_PATH[last].name}"
        if is_main and (api := OTHER_APIS.get(path)) is not None:
            return f": it belongs to {api}'s API, and this gateway has OpenAI's; use /v1/chat/completions"
        if is_main and (advice := next((NOT_SERVED[start] for start in NOT_SERVED if path.startswith(start)), "")):
            return f": {advice}"
        if any(path.endswith(known.removeprefix("/v1")) for known in self.routes if known.startswith("/v1/")):
            return f"; {base_url_hint(self._state.stack, request)}"
        meant = closest(path, self.routes, 0.8)
        return f' (did you mean "{meant}"?)' if meant else "; GET / lists all paths" if is_main else ""


def _take_run(request: HttpRequest) -> None:
    """Move the name of a run from the path (``/run/NAME/v1/…``) to the header, where the client could have sent it."""
    name, _, rest = request.path.removeprefix(RUN_PATH).partition("/")
    if "/v1/" not in f"/{rest}" and f"/{rest.rpartition('/')[2]}" not in TOKENIZER_PATHS:
        raise RouteNotFound("unknown path; the base_url of a run ends in /run/NAME/v1 or /run/NAME/MODEL/v1")
    run = checked_run(unquote(name), "/run/NAME/v1 in the path").encode("ascii")
    if request.headers.setdefault(RUN_HEADER, run) != run:
        raise InvalidValue(f"the path names the run {quoted(name)}, and the header x-gateway-run another; remove one")
    request.path = f"/{rest}"


def _endpoint_handler(service: Service, endpoint: LoadedEndpoint) -> Handler:
    return lambda request: service.answer(request, endpoint, request, request)


def _public_routes(state: GatewayState) -> Routes:
    server, service = state.stack.snapshot.server, Service(state)
    routes: dict[str, tuple[str, Handler]] = {
        **{
            path: ("POST", _endpoint_handler(service, load(endpoint.path)))
            for endpoint in served(server.endpoints)
            for path in endpoint.paths
        },
        **Models(state).routes,
        "/version": ("GET", version),
        "/openapi.json": ("GET", partial(openapi, server.endpoints)),
        **Health(state).routes,
    }
    if server.admin is None and is_loopback(server.host):
        routes |= Monitoring(state, keyed=True).routes
    return routes
