"""Answers the requests for ``/`` and below ``/viewer``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from gateway.calls.admission.access import base_url
from gateway.calls.endpoints.table import load
from gateway.calls.service import GatewayState, Service
from gateway.config.snapshot import Snapshot
from gateway.core.errors import GatewayError, Overloaded, RouteNotFound, ViewerClosed
from gateway.edge.http_request import HttpRequest
from gateway.viewer.access import SIGN_IN, SIGN_OUT, Access
from gateway.viewer.page import JSON_SUFFIX, Page, PageRequest, Visitor, answer_page, redirect, send_page
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.templating import asset

if TYPE_CHECKING:
    from gateway.viewer.runs.source import RunSource

ROOT = "/viewer"
ASSETS = "/assets/"
CHAT = "/api/chat"
"""The path of the call that the scripts of pages send: the same as ``/v1/chat/completions``."""
PAGES: Mapping[str, str] = {
    "": "gateway.viewer.home:HomePage",
    "models": "gateway.viewer.home:HomePage",
    "prompt": "gateway.viewer.prompt.pages:PromptPages",
    "compare": "gateway.viewer.prompt.pages:ComparePages",
    "recordings": "gateway.viewer.recordings.pages:RecordingPages",
    "runs": "gateway.viewer.runs.pages:RecordedRunPages",
}
"""The first part of a path below ``/viewer`` → the class of its pages."""
RECORDED_PAGES = {"recordings": "recordings/list.html", "runs": "runs/problem.html"}
"""The first part of the path of pages that show recordings → the template that says that there are no recordings."""
NAVIGATION = {"": "Models", "/prompt": "Prompt", "/compare": "Compare", "/recordings": "Recordings", "/runs": "Runs"}
"""Path below ``/viewer`` → the name of the page in the navigation."""
OPEN_PAGES = ("", "models")
"""The pages that are shown without access. They hide what the visitor may not see."""
NOBODY = Visitor(None, may_read=False)
"""The visitor of a request that has not been checked yet: no client, and nothing may be read."""
OPEN = Visitor(may_read=False)
"""A visitor who sees the list of the models only: on the second listener, or where the viewer is closed."""
RECORDINGS_OFF = (
    "Recordings are off. To record calls, name a file in gateway.yaml (recordings: {path: recordings.sqlite}) and set "
    "record: full or record: metadata in the policy of a model; gateway docs recordings describes both."
)


class Viewer:
    """The handler of all pages."""

    def __init__(self, state: GatewayState, *, admin: bool = False, runs: RunSource | None = None) -> None:
        """``admin``: True for the second listener, which has no keys and shows only the models and their state.

        ``runs``: the runs of ``gateway view``, whose pages are then the only ones.
        """
        self._state = state
        self.threads = PageThreads()
        """Make the pages of this listener. The default threads of the event loop are left to calls."""
        self._admin = admin
        self._service = Service(state)
        self._pages: dict[str, Any] = {}
        """The first part of a path → its pages. ``load`` adds them."""
        self._access = Access(state, once=runs is not None)
        self._has_only_runs = runs is not None
        if runs is None:
            self.load(state.stack.snapshot)
        else:
            self._pages["runs"] = resolve_name("gateway.viewer.runs.pages:RunPages")(runs, self.threads)

    def load(self, snapshot: Snapshot) -> None:
        """Import and make the pages that a configuration shows: all of them, or only the list of the models."""
        has_all = snapshot.server.viewer == "on" and not self._admin
        for path in ("/v1/chat/completions", "/v1/render") if has_all else ():
            load(path)  # the pages about prompts call both
        for name, pages in PAGES.items():
            shown = has_all and (name not in RECORDED_PAGES or snapshot.recordings.path is not None)
            if name not in self._pages and (shown or name in OPEN_PAGES):
                self._pages[name] = resolve_name(pages)(self._state, self.threads)

    def close(self) -> None:
        """Stop the threads. Called after all requests have ended."""
        self.threads.close()

    async def __call__(self, request: HttpRequest) -> None:
        """Answer one request."""
        below = request.path.removeprefix(ROOT) if request.path != "/" else ""
        if below.startswith(ASSETS):
            _send_asset(request, below.removeprefix(ASSETS))
            return
        if request.path != "/" and (self._admin or self._state.stack.snapshot.server.viewer == "off"):
            raise RouteNotFound("the viewer is off (server.viewer)" if not self._admin else "unknown path")
        if below == CHAT:
            await self._serve_call(request)
            return
        visitor, root = NOBODY, request.root_path + ROOT
        try:
            visitor = self._visitor(request)
            if visitor is not OPEN:
                self._access.require_own_page(request)
            url = "" if self._admin else base_url(self._state.stack, request)
            asked = PageRequest(below, {}, None, root, visitor, base_url=url, navigation=self._navigation(visitor))
            await answer_page(request, asked, self.threads, partial(self._page, request))
        except Overloaded:  # this page would wait for the threads too
            raise
        except GatewayError as error:
            if below.endswith(JSON_SUFFIX):
                raise
            asked = PageRequest(below, {}, None, root, visitor, navigation=self._navigation(visitor))
            page = Page("error.html", {"message": error.message, "code": error.code}, error.status)
            with suppress(Overloaded), self.threads.page(visitor.key):  # without a place, the error is sent as JSON
                await send_page(request, asked, page, self.threads)
            raise  # for the log and the metrics

    def _visitor(self, request: HttpRequest) -> Visitor:
        if self._admin:
            return OPEN
        try:
            return self._access.visitor(request)
        except ViewerClosed:
            if request.path == "/":
                return OPEN
            raise

    def _navigation(self, visitor: Visitor) -> Mapping[str, str]:
        if self._state.stack.snapshot.server.viewer == "off" or visitor in (OPEN, NOBODY):
            return {}
        return {"/runs": NAVIGATION["/runs"]} if self._has_only_runs else NAVIGATION

    async def _page(self, request: HttpRequest, asked: PageRequest) -> Page:
        name = asked.path.lstrip("/").partition("/")[0]
        if not self._admin and asked.visitor is not OPEN:
            access = self._access
            if (entrance := access.entrance(request, asked)) is not None:
                return entrance
            access.require_own_form(request, asked)
            if asked.path in (SIGN_IN, SIGN_OUT):
                return access.sign_in(request, asked) if asked.path == SIGN_IN else access.sign_out(request, asked)
            if asked.visitor.caller is None and name in PAGES and name not in OPEN_PAGES:
                return access.sign_in_page(asked)
        if self._has_only_runs and not name:
            return redirect(f"{asked.root}/runs")
        has_recordings = self._has_only_runs or self._state.stack.snapshot.recordings.path is not None
        if name in RECORDED_PAGES and not has_recordings:
            return Page(RECORDED_PAGES[name], {"problem": asked.visitor.problem or RECORDINGS_OFF})
        if name not in self._pages:
            raise RouteNotFound("no page has this address; /viewer has links to all pages")
        page: Page = await self._pages[name].page(asked)
        return page

    async def _serve_call(self, request: HttpRequest) -> None:
        """Serve the call of a page's script with the rights and the limits of the person who is signed in."""
        self._access.require_own_call(request)
        request.caller = self._access.visitor(request).caller
        await self._service.answer(request, load("/v1/chat/completions"), request, request)


def _send_asset(request: HttpRequest, name: str) -> None:
    """Send a style sheet or a script. Their addresses change with their content, so browsers may keep them."""
    found = asset(name)
    if found is None:
        raise RouteNotFound("no such asset")
    kind, content = found
    head = f"content-type: {kind}; charset=utf-8\r\ncache-control: max-age=86400\r\nx-content-type-options: nosniff\r\n"
    request.reply(200, head.encode("ascii"), content)
