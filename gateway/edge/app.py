"""Where does a request go? The ASGI application: one table of paths, one way out for errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from urllib.parse import unquote

from gateway.config.server import loopback
from gateway.core.errors import GatewayError, MethodNotAllowed, RouteNotFound
from gateway.edge.asked import Asked, Receive, Scope, Send, asked
from gateway.edge.calls import Calls
from gateway.edge.catalogue import MODEL, Catalogue
from gateway.edge.guard import HostGuard
from gateway.edge.hangup import ClientGone
from gateway.edge.replies import send_error
from gateway.runtime import Runtime

LOG = logging.getLogger("gateway.edge")

HEALTH = frozenset({"/health", "/health/live", "/health/ready"})
"""Answered whatever the Host header says: probes ask by address, and learn nothing but that we live."""

Handler = Callable[[Asked], Awaitable[None]]
Routes = Mapping[str, tuple[str, Handler]]
"""Path → (method, handler); a GET path answers HEAD as well. ``MODEL`` stands for every path below it."""


class App:
    """The gateway's HTTP surface (design 5)."""

    def __init__(self, runtime: Runtime, *, admin: bool = False) -> None:
        """``admin``: the second listener, which serves metrics and health only."""
        assert runtime.stack is not None
        server = runtime.stack.snapshot.server
        self._guard = HostGuard(replace(server, allowed_hosts=("*",)) if admin else server)
        self._catalogue = Catalogue(runtime)
        self._routes = self._admin() if admin else self._public(runtime, server.admin is None and loopback(server.host))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3, HTTP only."""
        request = asked(scope, receive, send)
        try:
            if request.path not in HEALTH:
                self._guard.check(request)
            handler, request = self._find(request)
            await handler(request)
        except ClientGone:
            return
        except GatewayError as error:
            await send_error(request, error)
        except Exception:  # a mistake of ours: the log gets the trace, the client an honest 500
            LOG.exception("%s failed inside the gateway", request.request_id)
            await send_error(request, GatewayError("the gateway made a mistake; its log has the details"))

    def _find(self, request: Asked) -> tuple[Handler, Asked]:
        row = self._row(request.path)
        if row is None:
            row, request = self._below_model(request)
        method, handler = row
        if request.method != method and not (request.method == "HEAD" and method == "GET"):
            return partial(_refuse_method, method), request
        return handler, request

    def _row(self, path: str) -> tuple[str, Handler] | None:
        return self._routes.get(MODEL if path.startswith(MODEL) else path)

    def _below_model(self, request: Asked) -> tuple[tuple[str, Handler], Asked]:
        """``/{model}/v1/…`` for clients that cannot name a model in the body.

        Whether there is such a model is told by the handlers, which ask for the key first.
        """
        name, slash, rest = request.path[1:].partition("/v1/")
        row = self._row(f"/v1/{rest}") if name and slash else None
        if row is None:
            raise RouteNotFound("no such path; POST /v1/chat/completions and GET /v1/models are good places to begin")
        return row, replace(request, path=f"/v1/{rest}", model=unquote(name))

    def _public(self, runtime: Runtime, with_metrics: bool) -> Routes:
        calls = Calls(runtime)
        routes: dict[str, tuple[str, Handler]] = {
            "/v1/chat/completions": ("POST", calls.chat),
            "/v1/completions": ("POST", calls.completions),
            "/v1/embeddings": ("POST", calls.embeddings),
            "/v1/render": ("POST", calls.render),
            "/v1/models": ("GET", self._catalogue.models),
            MODEL: ("GET", self._catalogue.model),
            **self._health(),
        }
        if with_metrics:
            routes["/metrics"] = ("GET", self._catalogue.metrics)
        return routes

    def _admin(self) -> Routes:
        return {**self._health(), "/metrics": ("GET", self._catalogue.metrics)}

    def _health(self) -> dict[str, tuple[str, Handler]]:
        return {
            "/health": ("GET", self._catalogue.live),
            "/health/live": ("GET", self._catalogue.live),
            "/health/ready": ("GET", self._catalogue.ready),
        }


async def _refuse_method(allowed: str, asked: Asked) -> None:
    """405, with the method that would do (RFC 9110, 15.5.6)."""
    await send_error(asked, MethodNotAllowed(f"this path takes {allowed} requests"), [("allow", allowed)])
