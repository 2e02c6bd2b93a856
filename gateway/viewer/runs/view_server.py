"""The server of ``gateway view``: the pages about the runs of the command line, for one browser on this machine."""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlencode

from gateway.analysis.rows import RunRow
from gateway.analysis.scores import RowScore
from gateway.calls.endpoints.cancellation import ClientGone
from gateway.cli.options import CommandError
from gateway.cli.reporting.source import read_run, run_files
from gateway.core.caller import Caller
from gateway.core.errors import GatewayError, InvalidValue
from gateway.edge.host_header import LOOPBACK
from gateway.edge.http1.server import HttpServer
from gateway.edge.http_request import HttpRequest
from gateway.edge.session import cookie_value
from gateway.viewer.page import HEADERS, Visitor, page_request, read_form, send_page
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.runs.pages import RunPages
from gateway.viewer.viewer import ASSETS, send_asset

LOG = logging.getLogger("gateway.view")
TEXT = b"content-type: text/plain; charset=utf-8\r\n"
CLOSE_SECONDS = 1.0
"""Seconds to wait at the end for answers that are being sent."""


class RunFiles:
    """The runs that the command line names, as a ``RunSource``."""

    def __init__(self, names: Sequence[str], config: Path, score: RowScore | None) -> None:
        self.score = score
        self.names = names
        self._config = config

    def runs(self, caller: Caller, start: int, count: int) -> list[dict[str, Any]]:
        """See ``RunSource``."""
        unknown = {"calls": None, "first": None, "last": None}
        return [{"run": name, **unknown} for name in self.names[start : start + count]]

    def state(self, run: str, caller: Caller) -> Hashable:
        """See ``RunSource``: the size of each file and the time of its last change."""
        self._check(run)
        found = [path.stat() for path in run_files(run, self._config) if path.exists()]
        return tuple([(one.st_size, one.st_mtime_ns) for one in found])

    def rows(self, files: ExitStack, run: str, caller: Caller, row: str | None = None) -> Iterator[RunRow]:
        """See ``RunSource``."""
        self._check(run)
        try:
            rows = read_run(files, run, self._config)
        except CommandError as error:
            raise InvalidValue(error.message) from None
        return rows if row is None else (one for one in rows if one.custom_id == row)

    def _check(self, run: str) -> None:
        if run not in self.names:
            raise InvalidValue("gateway view shows only the runs that its command line names")


class ViewServer:
    """Serves the pages. The first browser that opens ``url`` gets a cookie; every other request is refused."""

    def __init__(self, source: RunFiles, bound: socket.socket) -> None:
        port = bound.getsockname()[1]
        self._bound = bound
        self._hosts = {f"{name}:{port}" for name in LOOPBACK}
        self._cookie = f"gateway-view-{port}"
        """The name of the cookie. Cookies of one host are shared by all its ports."""
        self._token, self._session = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._token_used = False
        self._threads = PageThreads()
        self._pages = RunPages(source, self._threads)
        names = source.names
        self._first_page = (
            f"/runs/report?{urlencode({'run': names[0]})}"
            if len(names) == 1
            else f"/runs/why?{urlencode({'a': names[0], 'b': names[1]})}"
        )
        self.url = f"http://127.0.0.1:{port}/?token={self._token}"

    async def __aenter__(self) -> ViewServer:
        self._server = HttpServer(self._answer)
        await self._server.open([self._bound])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._server.drain()
        await self._server.wait_closed(CLOSE_SECONDS)
        self._threads.close()

    async def _answer(self, request: HttpRequest) -> None:
        """Answer one request."""
        try:
            await self._admit(request)
        except ClientGone:
            pass
        except GatewayError as error:
            request.reply(error.status, TEXT + HEADERS, f"{error.message}\n".encode())
        except Exception:  # a bug: log the traceback
            LOG.exception("internal error")
            request.reply(500, TEXT + HEADERS, b"internal error; the terminal of gateway view has the details\n")
        finally:
            if not request.complete:
                request.abort()

    async def _admit(self, request: HttpRequest) -> None:
        """Answer a request with the cookie, or with the unused token. Refuse other requests."""
        if (request.header("host") or "").lower() not in self._hosts:
            _refuse(request, "the Host header does not name this machine and this port")
            return
        if not self._has_cookie(request):
            token = parse_qs(request.query.decode("latin-1")).get("token", [""])[0]
            if request.method != "GET" or self._token_used or not _equal(token, self._token):
                _refuse(request, "this page needs the address that gateway view has printed; it works in one browser")
                return
            self._token_used = True
            cookie = f"set-cookie: {self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict\r\n"
            self._redirect(request, cookie.encode("ascii"))
        elif request.path == "/":
            self._redirect(request)
        elif request.path.startswith(ASSETS):
            send_asset(request, request.path.removeprefix(ASSETS))
        else:
            visitor = Visitor()
            content = await read_form(request, visitor)
            with self._threads.page(visitor.key):
                asked = await page_request(request, "", request.path, visitor, self._threads, content)
                await send_page(request, asked, await self._pages.page(asked), self._threads)

    def _has_cookie(self, request: HttpRequest) -> bool:
        return _equal(cookie_value(request.header("cookie"), self._cookie), self._session)

    def _redirect(self, request: HttpRequest, headers: bytes = b"") -> None:
        """Lead to the first page. Its address has no token."""
        request.reply(303, f"location: {self._first_page}\r\n".encode("ascii") + HEADERS + headers, b"")


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode())


def _refuse(request: HttpRequest, text: str) -> None:
    request.closing = True
    request.reply(403, TEXT + HEADERS, f"{text}\n".encode())
