"""Every page that a visitor reaches by links and choices exists, has a JSON twin, and shows nothing of other keys."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from tests.support.serving import gateway
from tests.support.world import key_file
from tests.viewer.browsing import Browser

SCRIPT = "policy: full, targets: [{speaks: scripted, script"
CONFIG = f"""
keys: {{file: keys.yaml}}
recordings: {{path: calls.sqlite}}
models:
  talk: {{template: chatml, {SCRIPT}: ok.yaml}}]}}
  short: {{template: sft-demo, {SCRIPT}: cut.yaml}}]}}
  broken: {{template: chatml, {SCRIPT}: broken.yaml}}]}}
  foreign-model: {{template: chatml, {SCRIPT}: ok.yaml}}]}}
"""
FILES = {
    "ok.yaml": "[Hello, {finish: stop}]",
    "cut.yaml": "[Hel, {finish: length}]",
    "broken.yaml": "[{error: upstream_error}]",
    "policies/full.yaml": "record: full\n",
    "keys.yaml": key_file({"ann": "models: [talk, short, broken]", "foreign-key": "models: ['*']"}),
}
MOST = 400
"""The maximum number of pages: pages that lead to new pages without end would let the test fail."""


def links(page: str) -> set[str]:
    """The addresses of the viewer's pages on a page: of its links, and of each choice of its filters."""
    found = {unescape(one) for one in re.findall(r'<a [^>]*href="([^"#]+)', page)}
    for action, form in re.findall(r'<form [^>]*method="get" action="([^"]+)"[^>]*>(.*?)</form>', page, re.DOTALL):
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
        for name, options in re.findall(r'<select [^>]*name="([^"]+)"(.*?)</select>', form, re.DOTALL):
            for value in re.findall(r'<option value="([^"]+)"', options):
                query = {one: unescape(text) for one, text in {**hidden, name: value}.items()}
                found.add(f"{action}?{urlencode(query)}")
    return {one for one in found if one.startswith("/viewer")}


def test_every_page_behind_a_link_exists_and_shows_nothing_of_another_key(tmp_path: Path) -> None:
    with gateway(tmp_path, CONFIG, files=FILES) as served:
        for key, runs in {"foreign-key": ("monday", "foreign-run"), "ann": ("monday", "tuesday")}.items():
            prefix = "foreign" if key == "foreign-key" else "own"
            for run, model in zip(runs, ("talk", "short"), strict=True):
                for at, name in enumerate(
                    (model, model, "broken", "foreign-model")[: 4 if key == "foreign-key" else 3]
                ):
                    body = {"model": name, "messages": [{"role": "user", "content": f"{prefix} question {at}"}]}
                    headers = {"x-gateway-run": run, "x-gateway-row": f"{prefix}-row-{at}"}
                    headers["authorization"] = f"Bearer {key}"
                    served.http.post("/v1/chat/completions", json=body, headers=headers)
        assert served.wait_until_idle()
        for recorder in served.runtime.resources.recorders.values():
            recorder.flush().result()
        browser, seen, left = Browser(served.root), set[str](), ["/viewer", "/viewer/runs/why?a=monday&b=tuesday"]
        browser.sign_in("ann")
        while left:
            address = left.pop()
            seen.add(address)
            parts = urlsplit(address)
            path = "/viewer/models" if parts.path == "/viewer" else parts.path
            page, twin = browser.get(address), browser.get(f"{path}.json?{parts.query}")
            assert (page.status_code, twin.status_code) == (200, 200), address
            assert "foreign" not in page.text, address
            assert "foreign" not in json.dumps(twin.json()), address
            left += links(page.text) - seen - set(left)
            assert len(seen) < MOST
        paths = {urlsplit(one).path.removeprefix("/viewer/") for one in seen}
        assert paths >= {
            "prompt",
            "compare",
            "recordings",
            "runs",
            *[f"runs/{name}" for name in ("report", "rows", "row", "why")],
        }
