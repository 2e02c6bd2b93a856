"""``gateway docs``: every page, link and picture opens, and a page is printed as it is."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from gateway.cli.verbs.docs import documents, page_names, page_server
from tests.cli.command import command
from tests.serving import ROOT, eventually


@pytest.fixture(scope="module")
def served() -> Iterator[httpx.Client]:
    with page_server(documents(), 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}", verify=False) as client:
            yield client
        server.shutdown()
        thread.join()


def test_every_page_is_reached_and_no_link_is_broken(served: httpx.Client) -> None:
    pages: dict[str, str] = {}
    waiting, linked = ["/"], []
    while waiting:
        path = waiting.pop()
        answer = served.get(path)
        assert answer.status_code == 200, path
        pages[path] = answer.text
        for target in re.findall(r'(?:href|src)="([^"]*)"', answer.text):
            if not urlsplit(target).scheme:
                there = urlsplit(urljoin(path, unescape(target)))
                linked.append((path, there.path, there.fragment))
                waiting += [there.path] * (there.path not in pages and there.path not in waiting)
    assert {f"/{name}.md" for name in page_names(documents())} - pages.keys() == {"/README.md"}  # "/"
    broken = [link for link in linked if link[2] and f'id="{link[2]}"' not in pages[link[1]]]
    assert broken == []


def test_tables_and_code_are_shown_as_such(served: httpx.Client) -> None:
    page = served.get("/templates.md").text
    assert "<h1" in page
    assert "<td><code>vicuna</code></td>" in page
    assert '<pre><code class="language-yaml"># meta_templates/my-sft.yaml' in page


@pytest.mark.parametrize("path", ["/nosuch.md", "/../pyproject.toml", "/%2e%2e/README.md", "/harnesses", "/a%00b"])
def test_nothing_else_is_served(served: httpx.Client, path: str) -> None:
    assert served.get(path).status_code == 404


@pytest.mark.parametrize("name", ["templates", "templates.md", "docs/templates.md"])
def test_a_page_is_printed_as_markdown(tmp_path: Path, name: str) -> None:
    ended = command(tmp_path, "docs", name)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.decode() == (ROOT / "docs/templates.md").read_text(encoding="utf-8")


def test_an_unknown_page_and_a_taken_port_are_errors(served: httpx.Client, tmp_path: Path) -> None:
    ended = command(tmp_path, "docs", "tmplates")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr == b'error: no page "tmplates" (did you mean "templates"?); gateway docs serves all pages\n'
    taken = command(tmp_path, "docs", "--port", str(served.base_url.port))
    assert taken.returncode == 3
    assert taken.stderr.endswith(b"(Address already in use); choose another port with --port\n")


@pytest.mark.parametrize(("path", "status"), [("/", 200), ("/cli.md", 200), ("/nosuch.md", 404)])
def test_head_has_the_headers_of_get_and_no_body(served: httpx.Client, path: str, status: int) -> None:
    head = served.head(path)
    assert (head.status_code, head.content) == (status, b"")
    assert head.headers["content-length"] == served.get(path).headers["content-length"]


def test_a_browser_that_resets_the_connection_prints_nothing(
    served: httpx.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    for sent in (b"", b"GET / HTTP/1.1\r\n"):
        with socket.create_connection((served.base_url.host, served.base_url.port or 0)) as browser:
            browser.sendall(sent)
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close sends RST
    assert served.get("/").status_code == 200  # both connections were accepted before this one
    assert eventually(lambda: not any("process_request" in thread.name for thread in threading.enumerate()))
    assert capfd.readouterr().err == ""
