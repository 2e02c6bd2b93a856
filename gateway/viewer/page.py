"""One page: the request for it, and the values that its template shows.

A page's values are plain JSON data. The address of a page with ``.json`` behind its path is the same values as JSON.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from gateway.core.caller import ANONYMOUS, Caller
from gateway.core.errors import InvalidValue, MethodNotAllowed
from gateway.edge.http_request import JSON_HEADER, HttpRequest
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.templating import render
from gateway.wire.json import dump_json
from metatemplate.values.dialogue import EMPTY_MAPPING

MAX_FORM = 4 * 1024 * 1024
"""The maximum size of a form, in bytes. Prompts of 200 kB must fit, and their characters percent-encoded."""
MAX_SMALL_FORM = 16 * 1024
"""The maximum size of a form of a visitor who has not signed in, in bytes."""
MAX_FIELDS = 32
"""The maximum number of fields of a form or a query."""
JSON_SUFFIX = ".json"

HEADERS = (
    b"cache-control: no-store\r\n"
    b"content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'\r\n"
    b"referrer-policy: same-origin\r\nx-content-type-options: nosniff\r\n"
)


@dataclass(frozen=True, slots=True)
class Visitor:
    """The person who looks, and what this person may see."""

    caller: Caller | None = ANONYMOUS
    """The client whose key this person has signed in with. None: keys are configured, and nobody is signed in."""
    may_read: bool = True
    """True: recorded prompts and answers may be shown: all of them, or with client keys those of ``caller``."""
    problem: str = ""
    """If ``may_read`` is false or ``caller`` is None: the reason, and what to do. Pages show this text with status 200.
    """
    has_keys: bool = False
    """True: client keys are configured."""
    form_token: str = ""
    """The token that a posted form must contain."""

    @property
    def key(self) -> str | None:
        """The name of this person's client key; empty without client keys, None without a sign-in."""
        return None if self.caller is None else self.caller.key


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What a browser asks for."""

    path: str
    """The path below the root, percent-encoded: empty, or ``/recordings/7``, without ``.json``."""
    query: Mapping[str, str]
    """The query of the address. Of a repeated name, the last value counts."""
    form: Mapping[str, str] | None
    """The values of a form that was posted; None for GET."""
    root: str
    """The path of the viewer itself, such as ``/viewer``, for links."""
    visitor: Visitor = Visitor()
    as_json: bool = False
    """True: the values are asked for as JSON."""
    base_url: str = ""
    """The ``base_url`` for clients, with the host that the browser has used. Empty on the second listener."""
    navigation: Mapping[str, str] = EMPTY_MAPPING
    """Path below the root → the name of the page that leads there from every page."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: the name of its template, and the values that the template shows, as plain JSON data."""

    template: str
    values: Mapping[str, Any]
    status: int = 200
    headers: bytes = b""
    """Further headers, such as ``location: …`` and ``set-cookie: …``, each with CRLF."""


async def answer_page(
    request: HttpRequest, asked: PageRequest, threads: PageThreads, make: Callable[[PageRequest], Awaitable[Page]]
) -> None:
    """Read the rest of a request for a page, and make and send the page, when it is the visitor's turn.

    ``asked``: the request without its query and its form; its path may end in ``.json``. A slow sender of a form takes
    no place of ``PageThreads``. Raises ``MethodNotAllowed`` for a method other than GET, HEAD and POST,
    ``BodyTooLarge`` for a large form, and ``InvalidValue`` for too many fields.
    """
    if request.method not in ("GET", "HEAD", "POST"):
        raise MethodNotAllowed("this path accepts only GET and POST requests")
    key, content, form = asked.visitor.key, None, None
    if request.method == "POST":
        content = await request.body(MAX_SMALL_FORM if asked.visitor.caller is None else MAX_FORM)
    with threads.page(key):
        if content is not None:
            form = await threads.run(key, _values, content.decode("utf-8", "replace"))
        query = _values(request.query.decode("latin-1"))
        path = asked.path.removesuffix(JSON_SUFFIX)
        asked = replace(asked, path=path, query=query, form=form, as_json=path != asked.path)
        await send_page(request, asked, await make(asked), threads)


async def send_page(request: HttpRequest, asked: PageRequest, page: Page, threads: PageThreads) -> None:
    """Send a page as HTML, or its values as JSON. It is written in a thread."""
    if page.status == 303:
        request.reply(page.status, HEADERS + page.headers, b"")
        return
    content = await threads.run(asked.visitor.key, _content, asked, page)
    kind = JSON_HEADER if asked.as_json else b"content-type: text/html; charset=utf-8\r\n"
    request.reply(page.status, kind + HEADERS + page.headers, content)


def _content(asked: PageRequest, page: Page) -> bytes:
    if asked.as_json:  # recorded texts may contain lone surrogates, and numbers of any size
        return dump_json(page.values).encode("ascii")
    facts = {"root": asked.root, "path": asked.path, "asked": asked, "visitor": asked.visitor}
    return render(page.template, {**page.values, **facts})


def redirect(address: str, headers: bytes = b"") -> Page:
    """Return the response that leads the browser to another page with GET."""
    return Page("", {}, 303, b"location: %b\r\n" % address.encode("ascii", "replace") + headers)


def _values(text: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise InvalidValue(f"a form or a query may have at most {MAX_FIELDS} fields") from None
