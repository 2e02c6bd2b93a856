"""Pages have threads of their own, and each client key a bounded part of them."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import threading
from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.core.caller import Caller
from gateway.core.errors import Overloaded
from gateway.storage.recorder import Recorder
from gateway.storage.recordings import is_interrupted, open_recording
from gateway.viewer.page import PageRequest, Visitor
from gateway.viewer.page_threads import MAX_WAITING, PageThreads
from gateway.viewer.runs.pages import RunPages
from gateway.viewer.runs.source import RecordedRuns
from gateway.viewer.viewer import Viewer
from tests.journeys.process import serving
from tests.support.ports import free_port
from tests.support.serving import ROOT, Gateway, bearer, gateway
from tests.support.world import HELLO, key_file

EMBEDDED = f"""
recordings: {{path: calls.sqlite}}
keys: {{file: keys.yaml}}
models: {{demo: {{template: sft-demo, policy: eval, targets: [{{speaks: embedded, path: {ROOT}/demo/model}}]}}}}
"""
WITH_ADMIN = """
server: {{admin: "127.0.0.1:{admin}"}}
models: {{demo: {{template: chat, targets: [{{speaks: scripted, script: hello.yaml}}]}}}}
"""
KEYS = key_file(dict.fromkeys(("ann", "bob", "cid"), "models: [demo]"))
PAGES = 40
"""More pages than the event loop has default threads."""
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"


@contextmanager
def blocked_pages(served: Gateway, *keys: str) -> Iterator[list[httpx.Response]]:
    """Ask for ``PAGES`` pages of each key. Each page that begins blocks, because the file of recordings is a pipe.

    Yields the answers to the pages that were refused meanwhile. At the end of the block, all others are answered.
    """

    def ask(key: str) -> httpx.Response:
        with httpx.Client(base_url=served.root, timeout=60, trust_env=False, verify=False) as http:
            return http.get("/viewer/recordings.json", headers=bearer(key))

    with ThreadPoolExecutor(PAGES * len(keys)) as pool:
        asked = [pool.submit(ask, key) for key in keys for _ in range(PAGES)]
        writer = None
        try:
            refused = (PAGES - MAX_WAITING - 1) * len(keys)
            done = threading.Semaphore(0)
            for one in asked:
                one.add_done_callback(lambda _: done.release())
            for _ in range(refused):
                assert done.acquire(timeout=60)
            yield [one.result() for one in asked if one.done()]
            writer = os.open(served.folder / "calls.sqlite", os.O_RDWR)  # opens the pipe of every reader
            assert [one.result().status_code for one in asked].count(200) == len(asked) - refused
        finally:
            if writer is None:
                writer = os.open(served.folder / "calls.sqlite", os.O_RDWR)
            for one in asked:
                one.exception()
            os.close(writer)


def test_no_call_and_no_reload_waits_for_pages_and_too_many_pages_of_a_key_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "calls.sqlite")
    with (
        gateway(tmp_path, EMBEDDED, files={"keys.yaml": KEYS}) as served,
        blocked_pages(served, "ann", "bob") as refused,
    ):
        assert {one.status_code for one in refused} == {503}
        assert all(int(one.headers["retry-after"]) >= 1 for one in refused)
        assert {one.json()["error"]["code"] for one in refused} == {"overloaded"}
        assert f"{MAX_WAITING} pages" in refused[0].json()["error"]["message"]
        for _ in range(3):
            assert served.chat("demo", "1+1=?", "cid").status_code == 200
        long = served.http.post("/tokenize", json={"model": "demo", "prompt": "12 " * 9000}, headers=bearer("cid"))
        assert long.status_code == 200
        assert served.http.get("/openapi.json").status_code == 200
        assert served.reload()


@contextmanager
def slow_forms(port: int, path: str) -> Iterator[None]:
    """Begin to send more forms than a visitor has places. The gateway waits for the rest of each during the block."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nsec-fetch-site: same-origin\r\n"
        "expect: 100-continue\r\ncontent-length: 50\r\n\r\n"
    )
    with ExitStack() as links:
        for _ in range(MAX_WAITING + 1):
            link = links.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            link.sendall(head.encode())
            assert link.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
            link.sendall(b"k")
        yield


def test_slow_forms_of_visitors_who_have_not_signed_in_keep_nobody_out(tmp_path: Path) -> None:
    with gateway(tmp_path, EMBEDDED, files={"keys.yaml": KEYS}) as served, slow_forms(served.port, "/viewer/sign-in"):
        page = served.http.get("/viewer/sign-in")
        assert (page.status_code, "Client key" in page.text) == (200, True)
        assert served.http.get("/viewer").status_code == 200


def test_slow_forms_without_client_keys_keep_nobody_out_of_either_listener(tmp_path: Path) -> None:
    admin = free_port()
    with (
        serving(tmp_path, {"gateway.yaml": WITH_ADMIN.format(admin=admin), **HELLO}) as process,
        slow_forms(process.port, "/viewer/prompt"),
    ):
        assert httpx.get(f"http://127.0.0.1:{admin}/", trust_env=False).status_code == 200
        assert process.http.get("/viewer").status_code == 200


def test_an_error_without_a_place_for_its_page_is_sent_as_json(tmp_path: Path) -> None:
    with gateway(tmp_path, EMBEDDED, files={"keys.yaml": KEYS}) as served:
        [viewer] = served.runtime.pages
        assert isinstance(viewer, Viewer)
        with closing_all([viewer.threads.page(None) for _ in range(MAX_WAITING + 1)]):
            refused = served.http.get("/viewer/models", headers=bearer("nobody"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        page = served.http.get("/viewer/models", headers=bearer("nobody"))
        assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")


class Steps:
    """Functions that note when they begin. One blocks until it may end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def blocking(self, name: str) -> str:
        self.begun.append(name)
        self.has_begun.set()
        assert self.may_end.wait(60)
        return name

    def short(self, name: str) -> str:
        self.begun.append(name)
        return name


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
async def test_one_page_of_a_key_works_at_a_time_also_if_its_visitor_leaves(*, leaves: bool) -> None:
    threads, steps = PageThreads(), Steps()
    first = asyncio.create_task(threads.run("ann", steps.blocking, "ann 1"))
    second = asyncio.create_task(threads.run("ann", steps.short, "ann 2"))
    assert await asyncio.to_thread(steps.has_begun.wait, 60)
    if leaves:
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
    # The second thread is free, and takes functions in order.
    assert await threads.run("bob", steps.short, "bob 1") == "bob 1"
    assert steps.begun == ["ann 1", "bob 1"]
    steps.may_end.set()
    assert await second == "ann 2"
    assert leaves or await first == "ann 1"
    threads.close()


def test_pages_that_have_ended_make_room_for_others() -> None:
    threads = PageThreads()
    for _ in range(3):
        with closing_all([threads.page("ann") for _ in range(MAX_WAITING + 1)]):
            with pytest.raises(Overloaded), threads.page("ann"):
                pass
            with threads.page("bob"), threads.page(None):
                pass


@contextmanager
def closing_all(pages: list[Any]) -> Iterator[None]:
    """Enter all pages."""
    for page in pages:
        page.__enter__()
    yield
    for page in pages:
        page.__exit__(None, None, None)


def recording(folder: Path) -> Path:
    recorder = Recorder(folder / "calls.sqlite", pytest.fail)
    recorder.open().result()
    recorder.close()
    return folder / "calls.sqlite"


def test_reading_ends_after_its_time(tmp_path: Path) -> None:
    with (
        closing(open_recording(recording(tmp_path), read_seconds=0.0)) as database,
        pytest.raises(sqlite3.OperationalError) as raised,
    ):
        database.execute(ENDLESS).fetchone()
    assert is_interrupted(raised.value)


async def test_a_report_that_reads_for_too_long_says_so(tmp_path: Path) -> None:
    path = recording(tmp_path)

    class EndlessRun(RecordedRuns):
        def __init__(self) -> None:
            pass

        def state(self, run: str, caller: Caller) -> Hashable:
            with closing(open_recording(path, read_seconds=0.0)) as database:
                return tuple(database.execute(ENDLESS).fetchone())

    threads = PageThreads()
    for page in ({"run": "x"}, {"a": "x", "b": "y"}):
        asked = PageRequest("/runs/why" if "b" in page else "/runs/report", page, None, "/viewer", Visitor())
        found = await RunPages(EndlessRun(), threads).page(asked)
        assert (found.status, "too long" in found.values["problem"]) == (500, True)
    threads.close()
