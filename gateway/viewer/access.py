"""Who may look at the pages: sign-in with a client key, or with the token that ``gateway serve`` and ``view`` print.

- With client keys, a visitor signs in with a key, and sees what this key may see.
- Without client keys, on a loopback listener, pages that render are open; recorded prompts and answers need the token.
  A Host header that is not a loopback name, and headers of a proxy, mean that the visitor may be on another machine:
  the viewer is closed then.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlencode

from gateway.calls.admission.access import authenticate
from gateway.calls.service import GatewayState
from gateway.calls.stack import Stack
from gateway.config.sections.server import is_loopback
from gateway.core.errors import BadHost, InvalidApiKey, MethodNotAllowed, UnsupportedMediaType, ViewerClosed
from gateway.edge.host_header import HostGuard
from gateway.edge.http_request import HttpRequest
from gateway.edge.session import OPERATOR, SESSION_SECONDS, TOKEN, Signer, cookie_value, viewer_signer
from gateway.policy.access.api_keys import key_digest
from gateway.viewer.page import Page, PageRequest, Visitor, redirect

LOG = logging.getLogger("gateway.viewer")

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
FORM = "form_token"
"""The name of the token in forms that are posted."""
A_PATH_BELOW = re.compile(r"/[A-Za-z0-9][!-\[\]-~]*")
"""The path of a page below the viewer, with its query."""
PROXY_HEADERS = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via")


class Access:
    """Identifies the visitor of a page, and answers the pages for signing in and out."""

    def __init__(self, state: GatewayState, now: Callable[[], float] = time.time, *, once: bool = False) -> None:
        """``now``: returns Unix time in seconds. ``once``: the printed token signs in one browser only."""
        self._state = state
        self._now = now
        self._once, self._token_used = once, False
        self._loopback = HostGuard(replace(state.stack.snapshot.server, allowed_hosts=()))

    def visitor(self, request: HttpRequest) -> Visitor:
        """Return the visitor. Raises ``ViewerClosed`` if the viewer is closed to this request.

        Raises ``InvalidApiKey`` for an ``Authorization`` header without a valid key.
        """
        stack = self._state.stack
        if stack.keyring.needed:
            return self._with_keys(stack, request)
        self._require_this_machine(stack, request)
        signer, cookie = self._signer(), _session_cookie(request)
        form_token = signer.token(FORM, cookie)
        if signer.subject(cookie, self._now()) == OPERATOR:
            return Visitor(form_token=form_token)
        problem = (
            "Recorded prompts and answers are shown to the person who has started the gateway: open the address that "
            "gateway serve or gateway view has printed, which contains a token. That of gateway view works in one "
            "browser."
        )
        return Visitor(may_read=False, problem=problem, form_token=form_token)

    def _with_keys(self, stack: Stack, request: HttpRequest) -> Visitor:
        if b"authorization" in request.headers:
            return Visitor(authenticate(stack, request), has_keys=True)
        signer, cookie = self._signer(), _session_cookie(request)
        form_token = signer.token(FORM, cookie)
        subject, problem = signer.subject(cookie, self._now()), "Sign in with a client key to see this page."
        if subject is not None:
            try:
                return Visitor(stack.keyring.owner(subject), has_keys=True, form_token=form_token)
            except InvalidApiKey:
                problem = "The key of this session was removed or has expired. Sign in with another key."
        elif cookie:
            problem = "The session has expired. Sign in again."
        return Visitor(None, False, problem, has_keys=True, form_token=form_token)

    def _require_this_machine(self, stack: Stack, request: HttpRequest) -> None:
        """Raise ``ViewerClosed`` if the browser may be on another machine. Without keys, only this machine may look."""
        what = "without client keys, the viewer is open on this machine only"
        if not is_loopback(stack.snapshot.server.host):
            raise ViewerClosed(
                f"{what}, and this gateway listens on other addresses; configure client keys (gateway docs viewer)"
            )
        try:
            self._loopback.check(request)
        except BadHost:
            raise ViewerClosed(
                f"{what}; use the address http://127.0.0.1, or configure client keys (gateway docs viewer)"
            ) from None
        if any(name in request.headers for name in PROXY_HEADERS):
            raise ViewerClosed(
                f"{what}, and this request came through a proxy; configure client keys (gateway docs viewer)"
            )

    def entrance(self, request: HttpRequest, asked: PageRequest) -> Page | None:
        """Return the redirect that follows the printed token in an address. None if the address has no valid token."""
        given = asked.query.get(TOKEN)
        if given is None or request.method != "GET" or (self._once and self._token_used):
            return None
        if not Signer(self._state.viewer_secret).is_token(given, TOKEN):
            return None
        self._token_used = True
        query = urlencode({name: value for name, value in asked.query.items() if name != TOKEN})
        return redirect(
            asked.root + asked.path + (f"?{query}" if query else ""),
            self._set_cookie(request, self._signer().session(OPERATOR, self._now())),
        )

    def _signer(self) -> Signer:
        return viewer_signer(self._state.stack.snapshot.server, self._state.viewer_secret)

    def sign_in_page(self, asked: PageRequest) -> Page:
        """Return the form for signing in, in place of a page that needs a key. It leads back to that page."""
        query = urlencode(asked.query)
        target = asked.path + (f"?{query}" if query else "")
        return Page("sign_in.html", {"problem": asked.visitor.problem, "next": target})

    def sign_in(self, request: HttpRequest, asked: PageRequest) -> Page:
        """Sign in with the key of the form, and lead to the page that was asked for; without a form, show the form."""
        target = asked.query.get("next", "")
        if not A_PATH_BELOW.fullmatch(target):
            target = ""
        problem = "" if asked.visitor.has_keys else "This gateway has no client keys."
        if asked.form is not None and asked.visitor.has_keys:
            try:
                key = asked.form.get("key", "").strip()
                self._state.stack.keyring.authenticate(f"Bearer {key}")
                session = self._signer().session(key_digest(key), self._now())
                return redirect(asked.root + target, self._set_cookie(request, session))
            except InvalidApiKey:
                LOG.warning("request %s to sign in to the viewer has no valid key", request.request_id)
                problem = (
                    "The gateway has no valid key with this value. The operator makes keys with: gateway keys new NAME"
                )
        return Page("sign_in.html", {"problem": problem, "next": target})

    def sign_out(self, request: HttpRequest, asked: PageRequest) -> Page:
        """Remove the session from this browser, if a form asks for it."""
        return redirect(asked.root, b"" if asked.form is None else self._set_cookie(request, "", 0))

    def require_own_form(self, request: HttpRequest, asked: PageRequest) -> None:
        """Raise ``ViewerClosed`` if a form was not posted by a page of this viewer to this visitor."""
        if asked.form is None or self._has_key(request):
            return
        if not self._signer().is_token(asked.form.get(FORM, ""), FORM, _session_cookie(request)):
            raise ViewerClosed("the form is older than the session; load the page again, and send it once more")

    def require_own_page(self, request: HttpRequest) -> None:
        """Raise ``ViewerClosed`` if a POST does not come from a page of this host."""
        site, origin = request.header("sec-fetch-site"), request.header("origin")
        own = site == "same-origin" if site is not None else origin is not None
        if origin is not None and origin.partition("://")[2] != request.header("host"):
            own = False
        if request.method == "POST" and not own and not self._has_key(request):
            raise ViewerClosed(
                "this request does not come from a page of this gateway; programs use the paths below /v1"
            )

    def require_own_call(self, request: HttpRequest) -> None:
        """Raise ``ViewerClosed`` if a call does not come from a page of this host.

        Raises ``MethodNotAllowed`` unless it is a POST, and ``UnsupportedMediaType`` unless its body is JSON.
        """
        if request.method != "POST":
            raise MethodNotAllowed("this path accepts only POST requests")
        self.require_own_page(request)
        if (request.header("content-type") or "").partition(";")[0].strip().lower() != "application/json":
            raise UnsupportedMediaType("the body of this request must be sent as application/json")

    def _has_key(self, request: HttpRequest) -> bool:
        """Return whether a program sends its key with the request. No other site can send it."""
        return self._state.stack.keyring.needed and b"authorization" in request.headers

    def _set_cookie(self, request: HttpRequest, value: str, seconds: int = SESSION_SECONDS) -> bytes:
        """Return the header that sets the cookie of a session. ``value``: see ``Signer.session``."""
        is_secure = "https" in (self._state.stack.snapshot.server.scheme, request.header("x-forwarded-proto"))
        return (
            f"set-cookie: {_cookie_name(request)}={value}; Path={request.root_path or '/'}; Max-Age={seconds}; "
            f"HttpOnly; SameSite=Strict{'; Secure' if is_secure else ''}\r\n"
        ).encode("latin-1")


def _session_cookie(request: HttpRequest) -> str:
    """Return the value of the cookie of a session; empty if there is none."""
    return cookie_value(request.header("cookie"), _cookie_name(request))


def _cookie_name(request: HttpRequest) -> str:
    """Return the name of the cookie. Browsers send cookies to every port of a host, so the name contains the port."""
    return "gateway-session-" + re.sub(r"[^A-Za-z0-9]+", "-", request.header("host") or "").strip("-")
