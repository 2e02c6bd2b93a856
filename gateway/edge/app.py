"""Where does a request go? One table of paths, one way out for errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from urllib.parse import unquote

from gateway.config.sections.server import is_loopback
from gateway.core.errors import GatewayError, MethodNotAllowed, RouteNotFound
from gateway.edge.cancellation import ClientGone
from gateway.edge.completions import Calls
from gateway.edge.host_header import HostGuard
from gateway.edge.http_request import HttpRequest
from gateway.edge.models import MODEL, Catalogue
from gateway.edge.replies import send_error
from gateway.runtime import Runtime

LOG = logging.getLogger("gateway.edge")

HEALTH = frozenset({"/health", "/health/live", "/health/ready"})
"""Answered whatever the Host header says: probes ask by address, and learn nothing but that we live."""

Handler = Callable[[HttpRequest], Awaitable[None]]
Routes = Mapping[str, tuple[str, Handler]]
"""Path → (method, handler); a GET path answers HEAD as well. ``MODEL`` stands for every path below it."""


class App:
    """The gateway's HTTP surface (``docs/spec/wire.md`` 5)."""

    def __init__(self, runtime: Runtime, *, admin: bool = False) -> None:
        """``admin``: the second listener, which serves metrics and health only."""
        assert runtime.stack is not None
        server = runtime.stack.snapshot.server
        self._guard = HostGuard(replace(server, allowed_hosts=("*",)) if admin else server)
        self._catalogue = Catalogue(runtime)
        self._routes = (
            self._admin() if admin else self._public(runtime, server.admin is None and is_loopback(server.host))
        )

    async def __call__(self, asked: HttpRequest) -> None:
        """Answer one request, whatever happens."""
        try:
            if asked.headers.get(b"host") not in self._guard.seen and asked.path not in HEALTH:
                self._guard.check(asked)
            method, handler = self._routes.get(asked.path) or self._find(asked)
            if asked.method == method or (asked.method == "HEAD" and method == "GET"):
                await handler(asked)
            else:
                _refuse_method(method, asked)
        except ClientGone:
            pass
        except GatewayError as error:
            _tell(asked, error)
        except Exception:  # a mistake of ours: the log gets the trace, the client an honest 500
            LOG.exception("%s failed inside the gateway", asked.request_id)
            _tell(asked, GatewayError("the gateway made a mistake; its log has the details"))
        finally:
            if not asked.answered:
                asked.abandon()

    def _find(self, asked: HttpRequest) -> tuple[str, Handler]:
        """The row of a path that stands for others, or for a model: ``/{model}/v1/…``."""
        return self._row(asked.path) or self._below_model(asked)

    def _row(self, path: str) -> tuple[str, Handler] | None:
        return self._routes.get(MODEL if path.startswith(MODEL) else path)

    def _below_model(self, asked: HttpRequest) -> tuple[str, Handler]:
        """``/{model}/v1/…`` for clients that cannot name a model in the body.

        Whether there is such a model is told by the handlers, which ask for the key first.
        """
        name, slash, rest = asked.path[1:].partition("/v1/")
        row = self._row(f"/v1/{rest}") if name and slash else None
        if row is None:
            raise RouteNotFound("no such path; POST /v1/chat/completions and GET /v1/models are good places to begin")
        asked.path = f"/v1/{rest}"
        asked.model = unquote(name)
        return row

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
            routes["/metrics"] = ("GET", self._catalogue.keyed_metrics)
        return routes

    def _admin(self) -> Routes:
        return {**self._health(), "/metrics": ("GET", self._catalogue.metrics)}

    def _health(self) -> dict[str, tuple[str, Handler]]:
        return {
            "/health": ("GET", self._catalogue.live),
            "/health/live": ("GET", self._catalogue.live),
            "/health/ready": ("GET", self._catalogue.ready),
        }


def _tell(asked: HttpRequest, error: GatewayError) -> None:
    """An error as the whole answer; behind the head of another it would be taken for a part of that one."""
    if not asked.status:
        send_error(asked, error)


def _refuse_method(allowed: str, asked: HttpRequest) -> None:
    """405, with the method that would do (RFC 9110, 15.5.6)."""
    send_error(asked, MethodNotAllowed(f"this path takes {allowed} requests"), f"allow: {allowed}\r\n".encode("ascii"))
