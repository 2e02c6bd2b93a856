"""Photographs pages with Chromium. Run by ``pictures.py`` in ``.venv-browser`` with one argument, JSON."""

import json
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

WIDTHS = {1280: 800, 380: 760}
"""Width → height of the window."""
RUNS = "/viewer/runs"
PAIR = "a=monday&b=tuesday"
DOCS = {
    "viewer-home": ("home", 940),
    "viewer-prompt": ("prompt-answer", 800),
    "viewer-recording": ("call", 860),
    "viewer-runs": ("runs", 500),
    "viewer-report": ("view-report", 800),
    "viewer-why": ("view-why", 800),
    "viewer-row": ("view-row-two", 800),
}
"""A picture of the documentation → its page, and its height."""
AXE = (Path(__file__).resolve().parents[3] / ".venv-browser/axe.js").read_text(encoding="utf-8")
SIZES = """[document.documentElement.scrollWidth, document.documentElement.scrollHeight,
    Math.max(0, ...[...document.querySelectorAll('tbody')].map(one => one.rows.length))]"""
WIDER = """() => [...document.querySelectorAll('main *, nav *, header *')]
    .filter(one => !one.closest('.scroll') && one.getBoundingClientRect().right > innerWidth + 1)
    .map(one => one.outerHTML.slice(0, 90)).slice(0, 2)"""


def answered(page: Page, model: str, text: str, compare: bool = False) -> None:
    """Fill in the form, show the prompt, and wait for the end of the answer."""
    page.locator("#model").select_option(model)
    page.locator("#messages").fill(text)
    if compare:
        page.locator("#model-b").select_option("demo-new")
    page.get_by_role("button", name="Compare the prompts" if compare else "Show the prompt").click()
    page.wait_for_selector("pre.prompt")
    if page.locator("#logprobs").count() and model == "demo":
        page.locator("#logprobs").check()
    page.locator("#send").click()
    ended = page.locator("#answer, #failure").filter(has_text=re.compile(r"\S"))
    expect(ended.first).to_be_attached()
    expect(page.locator("#send")).to_be_enabled()
    page.wait_for_timeout(300)


DIALOGUE = json.dumps(
    [
        {"role": "user", "content": "1+1=?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "47+36=?"},
    ]
)
PAGES = {
    "home": ("open", "/", None),
    "home-signed-out": ("keyed", "/", None),
    "sign-in": ("keyed", "/viewer/recordings", None),
    "home-signed-in": ("keyed", "/", "gk_team"),
    "recordings-off": ("keyed", "/viewer/recordings", "gk_team"),
    "no-token": ("open", "/viewer/recordings", "anonymous"),
    "recordings": ("open", "/viewer/recordings", None),
    "recordings-mixed": ("open", "/viewer/recordings?run=mixed", None),
    "recordings-none": ("open", "/viewer/recordings?model=no-such-model", None),
    "recordings-empty": ("empty", "/viewer/recordings", None),
    "call": ("open", "/viewer/recordings/call-demo", None),
    "call-reasoning": ("open", "/viewer/recordings/call-assistant", None),
    "call-tools": ("open", "/viewer/recordings/call-agent", None),
    "call-loops": ("open", "/viewer/recordings/call-loops", None),
    "call-failed": ("open", "/viewer/recordings/call-down", None),
    "call-broken-off": ("open", "/viewer/recordings/call-breaks-off", None),
    "call-fallback": ("open", "/viewer/recordings/call-down-with-fallback", None),
    "call-hostile": ("open", "/viewer/recordings/call-hostile", None),
    "runs": ("open", RUNS, None),
    "runs-empty": ("empty", RUNS, None),
    "report": ("open", f"{RUNS}/report?run=tuesday", None),
    "report-mixed": ("open", f"{RUNS}/report?run=mixed", None),
    "rows": ("open", f"{RUNS}/rows?run=tuesday", None),
    "row-one": ("open", f"{RUNS}/row?run=tuesday&row=ROW", None),
    "row-failed": ("open", f"{RUNS}/row?run=mixed&row=down", None),
    "row-hostile": ("open", f"{RUNS}/row?run=mixed&row=hostile", None),
    "why": ("open", f"{RUNS}/why?{PAIR}", None),
    "row-two": ("open", f"{RUNS}/row?{PAIR}&row=ROW", None),
    "prompt": ("open", "/viewer/prompt", None),
    "prompt-answer": ("open", "/viewer/prompt", lambda page: answered(page, "demo", DIALOGUE)),
    "prompt-reasoning": ("open", "/viewer/prompt", lambda page: answered(page, "assistant", "47+36=?")),
    "prompt-failed": ("open", "/viewer/prompt", lambda page: answered(page, "down", "47+36=?")),
    "prompt-long": ("open", "/viewer/prompt", lambda page: answered(page, "demo", "many words " * 30 + "w" * 400)),
    "compare": ("open", "/viewer/compare", None),
    "compare-answers": ("open", "/viewer/compare", lambda page: answered(page, "demo", "47+36=?", compare=True)),
    "error": ("open", "/viewer/nothing", None),
    "error-run": ("open", f"{RUNS}/report?run=sunday", None),
    "view-runs": ("view", RUNS, None),
    "view-report": ("view", f"{RUNS}/report?run=tuesday.jsonl", None),
    "view-report-monday": ("view", f"{RUNS}/report?run=monday.jsonl", None),
    "view-rows": ("view", f"{RUNS}/rows?run=tuesday.jsonl", None),
    "view-row-one": ("view", f"{RUNS}/row?run=tuesday.jsonl&row=ROW", None),
    "view-why": ("view", f"{RUNS}/why?a=monday.jsonl&b=tuesday.jsonl", None),
    "view-why-rows": ("view", f"{RUNS}/rows?a=monday.jsonl&b=tuesday.jsonl&cause=prompt", None),
    "view-row-two": ("view", f"{RUNS}/row?a=monday.jsonl&b=tuesday.jsonl&row=ROW", None),
    "view-why-cut": ("view-cut", f"{RUNS}/why?a=monday.jsonl&b=wednesday.jsonl", None),
    "view-row-cut": ("view-cut", f"{RUNS}/row?a=monday.jsonl&b=wednesday.jsonl&row=ROW", None),
    "view-why-same": ("view-same", f"{RUNS}/why?a=monday.jsonl&b=friday.jsonl", None),
}
"""Name → the server, the path, and what to do: a function of the page, or the client key to sign in with."""


def twin_of(path: str) -> str:
    """The path of the same values as JSON."""
    parts = urlsplit("/viewer/models" if path == "/" else path)
    return parts._replace(path=f"{parts.path}.json").geturl()


class Photographer:
    """Takes the pictures, looks for errors, and prints a line of JSON for each page."""

    def __init__(self, browser: Browser, given: dict) -> None:
        self.browser, self.given = browser, given
        self.contexts: dict[tuple, BrowserContext] = {}
        self.errors: list[str] = []

    def context(self, server: str, key: str | None) -> BrowserContext:
        """The visitor of a server, who has opened the address that it prints, or signed in with the key."""
        if (server, key) not in self.contexts:
            made = self.contexts[server, key] = self.browser.new_context()
            page = made.new_page()
            if key != "anonymous":
                page.goto(self.given["servers"][server])
            if key not in (None, "anonymous"):
                page.goto(self.given["servers"][server] + "/viewer/sign-in")
                page.get_by_label("Client key").fill(key)
                page.get_by_role("button", name="Sign in").click()
                expect(page.get_by_role("button", name="Sign out")).to_be_visible()  # close() waits for ever before
            page.close()
        return self.contexts[server, key]

    def visit(self, name: str) -> None:
        """Open one page, and look at it in both widths and both colour schemes."""
        server, path, action = PAGES[name]
        page = self.context(server, action if isinstance(action, str) else None).new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self.console)
        self.errors, sizes, status = [], [], 0
        path = path.replace("ROW", self.given["row"])
        address = urlsplit(self.given["servers"][server])._replace(path="", query="").geturl()
        page.set_viewport_size({"width": 1280, "height": 800})
        try:
            status = page.goto(address + path).status
            if callable(action):
                action(page)
            for width, height in {} if self.given["docs"] else WIDTHS.items():
                page.set_viewport_size({"width": width, "height": height})
                sizes.append(self.look(page, name, width))
            for picture in [one for one, (shown, _) in DOCS.items() if shown == name and self.given["docs"]]:
                page.set_viewport_size({"width": 1120, "height": DOCS[picture][1]})
                page.evaluate("scrollTo(0, 0)")
                page.screenshot(path=Path(self.given["folder"], f"{picture}.png"))
            twin = page.request.get(address + twin_of(path))
            if not isinstance(twin.json(), dict) or twin.status not in (status, 401, 403, 404):
                self.errors.append(f"{twin.url}: {twin.status} {twin.text()[:90]}")
        except Exception as error:
            self.errors.append(str(error).splitlines()[0])
        page.close()
        print(json.dumps({"page": name, "status": status, "sizes": sizes, "errors": self.errors}), flush=True)

    def console(self, message: ConsoleMessage) -> None:
        """Note an error on the console, except Chromium's own about the status of a page."""
        if message.type == "error" and "Failed to load" not in message.text:
            self.errors.append(message.text)

    def look(self, page: Page, name: str, width: int) -> tuple[int, int]:
        """Take the pictures of a page in one width; return the width and height of the document."""
        page.evaluate("scrollTo(0, 0)")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            if self.given["axe"]:
                page.evaluate(AXE)
                found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
                self.errors += [f"{width} {scheme}: {one['id']} {one['nodes'][0]['target']}" for one in found]
            for kind in ("", "-full") if self.given["folder"] else ():
                path = Path(self.given["folder"], f"{name}-{width}-{scheme}{kind}.png")
                page.screenshot(path=path, full_page=bool(kind))
        wide, tall, most = page.evaluate(SIZES)
        if wide > width:
            self.errors.append(f"wider than {width} px: {page.evaluate(WIDER)}")
        if most > 51:
            self.errors.append(f"a table with {most} rows")
        return wide, tall


def main() -> None:
    """Visit the pages that were asked for."""
    given = json.loads(sys.argv[1])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given["chromium"], args=["--no-sandbox"])
        photographer = Photographer(browser, given)
        for name in PAGES if not given["docs"] else [name for name, _ in DOCS.values()]:
            if not given["only"] or name.startswith(tuple(given["only"])):
                photographer.visit(name)
        browser.close()


if __name__ == "__main__":
    main()
