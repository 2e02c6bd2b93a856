"""``/``, a page for people, with its icon, and ``/version``."""

from __future__ import annotations

import json
import shlex
from html import escape

from gateway.calls.admission.access import authenticate, base_url, visible_models
from gateway.edge.about.openapi import SUMMARIES
from gateway.edge.endpoints.table import ENDPOINTS
from gateway.edge.http_request import HttpRequest
from gateway.edge.state import GatewayState
from gateway.version import VERSION

HEADERS = (
    b"content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\n"
    b"content-security-policy: default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; "
    b"frame-ancestors 'none'\r\n"
    b"x-content-type-options: nosniff\r\n"
)
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>meta-gateway</title>
<style>
:root {{ color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif }}
body {{ max-width: 56rem; margin: 2rem auto; padding: 0 1rem }}
code, pre {{ font-family: ui-monospace, monospace; font-size: .9rem }}
pre {{ overflow-x: auto; padding: 1rem; border: 1px solid; border-radius: .25rem }}
th, td {{ text-align: left; padding: .15rem 1.5rem .15rem 0; vertical-align: top }}
</style>
</head>
<body>
<main>
<h1>meta-gateway {version}</h1>
<p>An OpenAI-compatible gateway. Set a client's <code>base_url</code> to <code>{base_url}</code>.</p>
<h2>Models</h2>
{models}
<h2>Try it</h2>
<pre tabindex="0"><code>{command}</code></pre>
<h2>Paths</h2>
<table>
<thead><tr><th scope="col">Method</th><th scope="col">Path</th><th scope="col">Purpose</th></tr></thead>
<tbody>
{paths}
</tbody>
</table>
<p>The fields of each request are in <a href="{root_path}/openapi.json">openapi.json</a>.</p>
</main>
</body>
</html>
"""
ICON = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    b'<path fill="#28c" d="M1 15V8a7 7 0 0 1 14 0v7h-4V8a3 3 0 0 0-6 0v7z"/></svg>'
)
NEEDS_KEY = "<p>The names of the models are shown to clients that send a key.</p>"


class Home:
    """The handlers of ``/`` and ``/version``."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self.routes = {"/": ("GET", self.page), "/version": ("GET", self.version)}

    async def page(self, request: HttpRequest) -> None:
        """``GET /``. If keys are configured, a request without a key sees no model names."""
        stack = self._state.stack
        needs_key = stack.keyring.needed and request.header("authorization") is None
        names = [] if needs_key else visible_models(stack, authenticate(stack, request))
        address = base_url(stack, request)
        listed = "\n".join([f"<li><code>{escape(name)}</code></li>" for name in names])
        page = PAGE.format(
            version=VERSION,
            root_path=escape(request.root_path),
            base_url=escape(address),
            models=NEEDS_KEY if needs_key else f"<ul>\n{listed}\n</ul>",
            command=escape(curl_command(address, names[0] if names else "MODEL", has_keys=stack.keyring.needed)),
            paths="\n".join(PATHS),
        )
        request.reply(200, HEADERS, page.encode("utf-8"))

    async def version(self, request: HttpRequest) -> None:
        """``GET /version``, in vLLM's form."""
        request.reply_json(200, {"version": VERSION})


async def icon(request: HttpRequest) -> None:
    """``GET /favicon.ico``, which browsers request without a key."""
    request.reply(200, b"content-type: image/svg+xml\r\ncache-control: max-age=86400\r\n", ICON)


ICON_ROUTES = {"/favicon.ico": ("GET", icon)}


def curl_command(base_url: str, model: str, *, has_keys: bool) -> str:
    """Return a shell command that sends a chat request."""
    key = " -H 'authorization: Bearer YOUR_KEY'" if has_keys else ""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "1+1=?"}]})
    return f"curl {base_url}/chat/completions -H 'content-type: application/json'{key} -d {shlex.quote(body)}"


def _row(method: str, path: str, summary: str) -> str:
    return f"<tr><td>{method}</td><td><code>{escape(path)}</code></td><td>{escape(summary)}</td></tr>"


PATHS = (
    *[_row("POST", path, endpoint.summary) for endpoint in ENDPOINTS for path in endpoint.paths],
    *[_row("GET", path, summary) for path, summary in SUMMARIES.items()],
)
"""The rows of the table of paths."""
