"""Media files that are sent inline: one budget for all calls, and what is recorded in place of their contents."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.evaluate.analysis.differences import differences_of
from gateway.evaluate.analysis.prove import Proof
from gateway.evaluate.analysis.recordings import read_recording
from gateway.policy.admit.media_files import InlineBudget
from gateway.storage.recordings import open_recording
from tests.support.serving import Gateway, eventually, gateway, write_files
from tests.support.upstream.server import FaultyUpstream

PIXELS, OTHER = b"\x89PNG pixels", b"\x89PNG others"
LIMIT = 20
CONFIG = """
server: {{max_inlined_media: {limit}}}
recordings: {{path: calls.sqlite}}
models:
  answering: {{template: chat, policy: inline, targets: [{{speaks: chat, url: "{ok}"}}]}}
  hanging: {{template: chat, policy: inline, targets: [{{speaks: chat, url: "{hang}"}}]}}
  failing: {{template: chat, policy: inline, targets: [{{speaks: chat, url: "{fails}"}}]}}
  refusing: {{template: chat, policy: inline, targets: [{{speaks: chat, url: "{refuses}"}}]}}
"""
POLICY = f"""
media: {{file: inline, folders: [images], max_size: {LIMIT}}}
record: full
delivery: {{retry: {{attempts: 2}}}}
"""


@dataclass(frozen=True)
class Budgeted:
    """A gateway whose calls may hold one file at a time."""

    served: Gateway
    up: FaultyUpstream

    def body(self, model: str, name: str = "a.png", **fields: Any) -> dict[str, Any]:
        image = {"type": "image_url", "image_url": {"url": f"file://{name}"}}
        return {"model": model, "messages": [{"role": "user", "content": [image]}], **fields}

    def ask(self, model: str, path: str = "/v1/chat/completions", **fields: Any) -> httpx.Response:
        return self.served.http.post(path, json=self.body(model, **fields))

    @property
    def used(self) -> int:
        budget: InlineBudget = self.served.runtime.resources.single("gateway.policy.admit.media_files:InlineBudget")
        return budget.used

    def recorded(self) -> Path:
        """The file of recordings, when all calls are in it."""
        assert self.served.wait_until_idle()
        recorder = self.served.runtime.state.stack.recorder
        assert recorder is not None
        recorder.flush().result()
        return self.served.folder / "calls.sqlite"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Budgeted]:
    folder = tmp_path_factory.mktemp("inlined")
    (folder / "images").mkdir()
    (folder / "images" / "a.png").write_bytes(PIXELS)
    write_files(folder, {"policies/inline.yaml": POLICY})
    with FaultyUpstream() as up:
        urls = {"ok": up.url("ok"), "hang": up.url("hang-headers"), "fails": up.url("html-502")}
        config = CONFIG.format(limit=LIMIT, refuses=up.url("400-empty"), **urls)
        with gateway(folder, config) as served:
            yield Budgeted(served, up)


def test_a_call_above_the_budget_is_refused_until_the_other_call_is_cancelled(world: Budgeted) -> None:
    refused: list[httpx.Response] = []
    before = world.up.request_count

    def is_refused() -> bool:
        if world.up.request_count > before:
            refused.append(world.ask("answering"))
        return bool(refused)

    world.served.disconnect(world.body("hanging"), is_refused)
    [answer] = refused
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, "overloaded")
    assert f"server.max_inlined_media={LIMIT}" in error["message"]
    assert "retry-after" in answer.headers
    assert eventually(lambda: world.used == 0)
    assert world.ask("answering").status_code == 200


ENDS: dict[str, tuple[dict[str, Any], int]] = {  # how a call ends: its request and status
    "whole": ({"model": "answering"}, 200),
    "streamed": ({"model": "answering", "stream": True}, 200),
    "explained": ({"model": "answering", "gateway": {"explain": True}}, 200),
    "rendered": ({"model": "answering", "path": "/v1/render"}, 200),
    "failed": ({"model": "failing"}, 502),
    "rejected": ({"model": "refusing"}, 400),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_budget_is_free_when_a_call_has_ended(world: Budgeted, end: str) -> None:
    """The client keeps its connection open meanwhile."""
    request, status = ENDS[end]
    for _ in range(3):
        answer = world.ask(**request)
        assert answer.status_code == status, answer.text
        assert eventually(lambda: world.used == 0)


def test_the_contents_of_files_are_not_recorded(world: Budgeted) -> None:
    assert world.ask("answering").status_code == 200
    with closing(sqlite3.connect(world.recorded())) as database:
        rows = database.execute("SELECT messages FROM exchanges").fetchall()
    digest = hashlib.sha256(PIXELS).hexdigest()
    assert f'"url": "inlined-file:a.png;size={len(PIXELS)};sha256={digest}"' in rows[-1][0].replace('":"', '": "')
    assert [text for (text,) in rows if "data:" in text] == []


def test_a_recorded_call_with_a_file_is_replayed_and_compared_by_the_content_of_the_file(
    world: Budgeted, tmp_path: Path
) -> None:
    image = world.served.folder / "images" / "b.png"
    for run, content in (("one", PIXELS), ("two", OTHER)):
        image.write_bytes(content)
        headers = {"x-gateway-run": run, "x-gateway-row": "row"}
        answer = world.served.http.post("/v1/chat/completions", json=world.body("answering", "b.png"), headers=headers)
        assert answer.status_code == 200
    path = world.recorded()
    with closing(open_recording(path)) as file:
        one, two = [next(read_recording(file, run)).with_facts() for run in ("one", "two")]
    assert list(differences_of(one, two)) == ["prompt"]
    proof = Proof(most=1, score=None)
    proof.visit(one, two)
    assert (proof.rows, proof.left_out) == (1, 1)  # the contents of files cannot be sent again
    config = f"models: {{replayed: {{template: chat, policy: inline, targets: [{{speaks: replay, file: {path}}}]}}}}"
    policy = f"media: {{file: inline, folders: [{image.parent}]}}"
    with gateway(tmp_path, config, files={"policies/inline.yaml": policy}) as served:
        for content, status in ((OTHER, 200), (PIXELS, 200), (b"new", 400)):
            image.write_bytes(content)
            headers = {"x-gateway-run": "two" if content == OTHER else "one", "x-gateway-row": "row"}
            body = world.body("replayed", "b.png")
            answer = served.http.post("/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == status, answer.text
    assert "sha256=" in answer.json()["error"]["message"]
