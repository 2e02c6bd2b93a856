"""Answers the requests below ``/viewer``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gateway.core.errors import RouteNotFound
from gateway.edge.endpoints.call import CallHandler
from gateway.edge.endpoints.table import ENDPOINTS
from gateway.edge.http_request import HttpRequest
from gateway.edge.state import GatewayState
from gateway.viewer.page import Page, PageRequest, Visitor, page_request, send_page

ROOT = "/viewer"
ASSETS = "/assets/"
API_ENDPOINTS = ("chat", "render", "tokenize")
"""The names of the endpoints that the scripts of pages call, as ``/viewer/api/NAME``."""
PAGES: Mapping[str, tuple[str, str]] = {
    "prompt": ("gateway.viewer.prompt_pages", "PromptPages"),
    "compare": ("gateway.viewer.prompt_pages", "ComparePages"),
}
"""The first part of a path below ``/viewer`` → (module, class) of its pages. They are imported on the first request."""


class Viewer:
    """The handler of all pages."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._api = {
            f"/api/{endpoint.name}": CallHandler(endpoint, state).serve
            for endpoint in ENDPOINTS
            if endpoint.name in API_ENDPOINTS
        }
        """Path → handler of a call that a page sends: the same as below ``/v1``, for the person who is signed in."""
        self._pages: dict[str, Any] = {}
        """The first part of a path → its pages, once they have been asked for."""

    async def __call__(self, request: HttpRequest) -> None:
        """Answer one request."""
        root, below = request.root_path + ROOT, request.path.removeprefix(ROOT)
        if below.startswith(ASSETS):
            send_asset(request, below.removeprefix(ASSETS))
            return
        if below in self._api:
            await self._api[below](request)
            return
        asked = await page_request(request, root, below, Visitor())
        send_page(request, asked, await self._page(asked))

    async def _page(self, asked: PageRequest) -> Page:
        name = asked.path.lstrip("/").partition("/")[0]
        if name not in PAGES:
            raise RouteNotFound("unknown page; GET /viewer leads to all pages")
        if name not in self._pages:
            module, cls = PAGES[name]
            self._pages[name] = getattr(import_module(module), cls)(self._state)
        page: Page = await self._pages[name].page(asked)
        return page


def send_asset(request: HttpRequest, name: str) -> None:
    """Send a style sheet or a script. Their addresses contain the version, so browsers may keep them."""
    from gateway.viewer.templating import asset

    found = asset(name)
    if found is None:
        raise RouteNotFound("no such asset")
    kind, content = found
    head = f"content-type: {kind}; charset=utf-8\r\ncache-control: max-age=86400\r\nx-content-type-options: nosniff\r\n"
    request.reply(200, head.encode("ascii"), content)
