"""A visitor of the viewer, without a browser."""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx

from gateway.server.greeting import viewer_address
from tests.support.serving import Gateway


class Browser:
    """What a browser does: it keeps cookies, follows redirects, and names its origin with each form."""

    def __init__(self, root: str, headers: Mapping[str, str] | None = None) -> None:
        self.http = httpx.Client(base_url=root, trust_env=False, follow_redirects=True, timeout=60, headers=headers)
        self.root = root

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.http.get(path, headers=headers)

    def post(self, path: str, form: Mapping[str, str], **headers: str) -> httpx.Response:
        """Post a form of this site."""
        return self.http.post(
            path, data=form, headers={"origin": self.root, "sec-fetch-site": "same-origin", **headers}
        )

    def sign_in(self, key: str, path: str = "/viewer/sign-in") -> httpx.Response:
        """Fill in the form for signing in."""
        return self.post(path, {"key": key, "form_token": form_token(self.get(path))})


def form_token(page: httpx.Response) -> str:
    """The token of the first form on a page."""
    found = re.search(r'name="form_token" value="([^"]+)"', page.text)
    assert found is not None
    return found[1]


def token_of(served: Gateway) -> str:
    """The token that ``gateway serve`` prints."""
    address = viewer_address(served.runtime.state.stack.snapshot, served.port, served.runtime.state.viewer_secret)
    assert address.startswith("http://127.0.0.1:8000/viewer?token=".replace("8000", str(served.port)))
    return address.partition("?token=")[2]


def open_recordings(served: Gateway) -> None:
    """Give the gateway's own client the session of the person who has started the gateway."""
    assert served.http.get("/viewer", params={"token": token_of(served)}).status_code == 303
