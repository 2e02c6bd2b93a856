"""Show the documentation that comes with the gateway, in a browser or on the terminal.

Without PAGE, the pages are served on 127.0.0.1 until Ctrl-C. With PAGE, this page is printed as Markdown.
"""

from __future__ import annotations

import mimetypes
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from gateway.cli.options import CommandError, verb
from gateway.core.errors import CONFIG_FAILED
from gateway.core.words import quoted, suggest

EXAMPLES = """Examples:
  gateway docs                                     then open http://127.0.0.1:8001 in a browser
  gateway docs --port 9001
  gateway docs templates | less                    one page
"""
FIRST = "README.md"
HTML = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word }}
code, pre {{ font-family: ui-monospace, monospace; font-size: .9rem }}
pre {{ overflow-x: auto; padding: 1rem; border: 1px solid; border-radius: .25rem }}
table {{ display: block; overflow-x: auto; border-collapse: collapse }}
th, td {{ text-align: left; padding: .25rem .75rem; border: 1px solid; vertical-align: top }}
img {{ max-width: 100% }}
</style>
</head>
<body>
<nav><a href="/">All pages</a></nav>
<main>
{body}</main>
</body>
</html>
"""


def _shell_complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in page_names(documents()) if name.startswith(incomplete)]


@verb(__doc__, EXAMPLES)
@click.argument("page", required=False, metavar="[PAGE]", shell_complete=_shell_complete, help="the page to print")
@click.option("--port", type=click.IntRange(0, 65535), default=8001, metavar="PORT", help="the port on 127.0.0.1")
def command(page: str | None, port: int) -> int:
    """Print a page, or serve all pages."""
    files = documents()
    if page is not None:
        name = page.removeprefix("docs/").removesuffix(".md")
        if name not in page_names(files):
            raise CommandError(
                f"no page {quoted(page)}{suggest(name, page_names(files))}; gateway docs serves all pages"
            )
        sys.stdout.write(files[f"{name}.md"].read_text(encoding="utf-8"))
        return 0
    with page_server(files, port) as server, suppress(KeyboardInterrupt):
        click.echo(f"the documentation is at http://127.0.0.1:{server.server_port}/  (Ctrl-C ends)", err=True)
        server.serve_forever()
    return 0


def documents() -> Mapping[str, Path]:
    """Return the files of the documentation, by their path in the folder ``docs``."""
    from gateway.config.library import shipped_data

    folder = shipped_data() / "docs"
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def page_names(files: Mapping[str, Path]) -> list[str]:
    """Return the names with which ``gateway docs`` prints pages."""
    return [name.removesuffix(".md") for name in files if name.endswith(".md")]


def page_server(files: Mapping[str, Path], port: int) -> ThreadingHTTPServer:
    """Return a bound server of the pages. Raises ``CommandError`` if the port is taken."""
    try:
        return _PageServer(("127.0.0.1", port), partial(_Handler, files))
    except OSError as error:
        message = f"cannot listen on 127.0.0.1:{port} ({error.strerror}); choose another port with --port"
        raise CommandError(message, CONFIG_FAILED) from None


class _PageServer(ThreadingHTTPServer):
    """A server that does not report connections that the browser has closed."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of a bug."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers with a page as HTML, or with a picture."""

    def __init__(self, files: Mapping[str, Path], *arguments: Any) -> None:
        self._files = files
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Answer one request."""
        name = unquote(urlsplit(self.path).path).lstrip("/") or FIRST
        path = self._files.get(name)
        if path is None:
            self.send_error(404, "no such page")
            return
        is_page = name.endswith(".md")
        content = page_html(name, self._files).encode() if is_page else path.read_bytes()
        kind = "text/html; charset=utf-8" if is_page else mimetypes.guess_type(name)[0] or "application/octet-stream"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def page_html(name: str, files: Mapping[str, Path]) -> str:
    """Return a page as HTML."""
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark").enable("table")
    tokens = markdown.parse(files[name].read_text(encoding="utf-8"))
    title = name
    for opening, text in pairwise(tokens):
        if opening.type == "heading_open":
            title = text.content if opening.tag == "h1" else title
            opening.attrSet("id", re.sub(r"[^\w\- ]", "", text.content.lower()).strip().replace(" ", "-"))
    return HTML.format(title=escape(title), body=markdown.renderer.render(tokens, markdown.options, {}))
