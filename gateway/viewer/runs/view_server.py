"""The pages of ``gateway view``: those about the runs of the command line, for one browser on this machine."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

from gateway.calls.endpoints.cancellation import ClientGone
from gateway.cli.options import CommandError
from gateway.core.caller import Caller
from gateway.core.errors import GatewayError, InvalidValue, ViewerClosed
from gateway.edge.host_header import LOOPBACK
from gateway.edge.http_request import HttpRequest
from gateway.edge.session import OPERATOR, TOKEN, Signer
from gateway.evaluate.analysis.rows import RunRow
from gateway.evaluate.analysis.scores import RowScore
from gateway.evaluate.reporting.source import read_run, run_files
from gateway.viewer.access import session_cookie, session_header
from gateway.viewer.page import HEADERS, PageRequest, answer_page
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.runs.pages import RunPages
from gateway.viewer.viewer import ASSETS, send_asset

LOG = logging.getLogger("gateway.view")
TEXT = b"content-type: text/plain; charset=utf-8\r\n"


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
    """Answers the requests. The first browser that opens ``url`` begins a session; every other one is refused."""

    def __init__(self, source: RunFiles, port: int) -> None:
        self._hosts = {f"{name}:{port}" for name in LOOPBACK}
        self._signer = Signer(secrets.token_bytes(32))
        self._token_used = False
        self.threads = PageThreads()
        self._pages = RunPages(source, self.threads)
        names = source.names
        page, query = ("why", dict(zip("ab", names, strict=True))) if len(names) > 1 else ("report", {"run": names[0]})
        self._first_page = f"/runs/{page}?{urlencode(query)}"
        self.url = f"http://127.0.0.1:{port}/?{TOKEN}={self._signer.token(TOKEN)}"

    async def __call__(self, request: HttpRequest) -> None:
        """Answer one request."""
        try:
            await self._admit(request)
        except ClientGone:
            pass
        except GatewayError as error:
            request.closing = isinstance(error, ViewerClosed)  # the rest of a refused request is not read
            request.reply(error.status, TEXT + HEADERS, f"{error.message}\n".encode())
        except Exception:  # a bug: log the traceback
            LOG.exception("internal error")
            request.reply(500, TEXT + HEADERS, b"internal error; the terminal of gateway view has the details\n")
        finally:
            if not request.complete:
                request.abort()

    async def _admit(self, request: HttpRequest) -> None:
        """Answer a request of the session, or with the unused token. Raises ``ViewerClosed`` for other requests."""
        if (request.header("host") or "").lower() not in self._hosts:
            raise ViewerClosed("the Host header does not name this machine and this port")
        if self._signer.subject(session_cookie(request), time.time()) is None:
            token = parse_qs(request.query.decode("latin-1")).get(TOKEN, [""])[0]
            if request.method != "GET" or self._token_used or not self._signer.is_token(token, TOKEN):
                raise ViewerClosed("this page needs the address that gateway view has printed; it works in one browser")
            self._token_used = True
            self._redirect(request, session_header(request, self._signer.session(OPERATOR, time.time())))
        elif request.path == "/":
            self._redirect(request)
        elif request.path.startswith(ASSETS):
            send_asset(request, request.path.removeprefix(ASSETS))
        else:
            await answer_page(request, PageRequest(request.path, {}, None, ""), self.threads, self._pages.page)

    def _redirect(self, request: HttpRequest, headers: bytes = b"") -> None:
        """Lead to the first page. Its address has no token."""
        request.reply(303, f"location: {self._first_page}\r\n".encode("ascii") + HEADERS + headers, b"")
