"""The viewer of ``gateway serve`` with several workers, and on the second listener."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from tests.journeys.process import serving
from tests.support.ports import free_port
from tests.support.world import HELLO, key_file
from tests.viewer.browsing import Browser

MODELS = "models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}\n"
KEYS = {"keys.yaml": key_file({"gk_some": "models: ['*']"}), **HELLO}


def test_all_workers_accept_a_session_and_the_second_listener_shows_the_models_only(tmp_path: Path) -> None:
    port = free_port()
    config = f"server: {{workers: 2, admin: '127.0.0.1:{port}'}}\nkeys: {{file: keys.yaml}}\n{MODELS}"
    with serving(tmp_path, {"gateway.yaml": config, **KEYS}) as process:
        browser = Browser(f"http://127.0.0.1:{process.port}")
        browser.sign_in("gk_some")
        (cookie,) = [f"{one.name}={one.value}" for one in browser.http.cookies.jar]
        for _ in range(20):  # each connection reaches one of the workers
            answer = httpx.get(f"{browser.root}/viewer/models.json", headers={"cookie": cookie}, trust_env=False)
            assert [model["name"] for model in answer.json()["models"]] == ["m"]
        admin = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)
        page = admin.get("/").text
        assert "<code>m</code>" in page
        assert "/v1" not in page
        for path in ("/viewer", "/viewer/prompt", "/viewer/models.json", "/viewer/api/chat"):
            assert admin.get(path).status_code == 404


def test_the_printed_address_opens_the_recordings(tmp_path: Path) -> None:
    with serving(tmp_path, {"gateway.yaml": MODELS, **HELLO}) as process:
        found = re.search(r"look:\n  (http://\S+/viewer\?token=\S+)", process.log)
        assert found is not None
        root = f"http://127.0.0.1:{process.port}"
        assert "printed" in Browser(root).get("/viewer/recordings").text
        browser = Browser(root)
        browser.get(found[1])
        assert "Recordings are off" in browser.get("/viewer/recordings").text
