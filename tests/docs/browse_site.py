"""The built site in Chromium. Run by ``tests/docs/test_site.py`` in ``.venv-browser``.

Usage: browse_site.py FOLDER CHROMIUM. Prints one line of JSON: page → what the copy buttons of its console blocks
copy, the number of its code blocks that are cut, and the number of its links to the previous and the next page.
"""

import json
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from playwright.sync_api import sync_playwright


class Silent(SimpleHTTPRequestHandler):
    """A server of files without a log."""

    def log_message(self, *_: object) -> None:
        """Write nothing."""


folder, chromium = Path(sys.argv[1]), sys.argv[2]
server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(folder)))
Thread(target=server.serve_forever, daemon=True).start()
found = {}
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix()
        page.goto(f"http://127.0.0.1:{server.server_port}/{name}")
        copied = []
        for block in page.locator(".language-console").all():
            block.hover()
            block.locator("button[data-md-type=copy]").click()
            copied.append(page.evaluate("navigator.clipboard.readText()"))
        found[name] = {
            "copied": copied,
            "cut": page.locator("pre > code").evaluate_all(
                "all => all.filter(e => e.scrollWidth > e.clientWidth).length"
            ),
            "links": page.locator(".md-footer__link:visible").count(),
        }
print(json.dumps(found))
