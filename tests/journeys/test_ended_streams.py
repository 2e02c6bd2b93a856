"""An ended stream no longer counts as in flight when the client can send its next call, on every endpoint."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest

from tests.support.serving import SERVERS
from tests.support.upstream.server import FaultyUpstream

TARGETS = {
    "completions": "{{speaks: completions, url: {url}, model: m}}",
    "chat": "{{speaks: chat, url: {url}, model: m}}",
    "litellm": "{{speaks: litellm, url: {url}, model: openai/m}}",
    "scripted": "{{speaks: scripted, script: said.yaml}}",
}
ASKED = 30


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("door", TARGETS)
def test_consecutive_calls_never_exceed_a_limit_of_one(tmp_path: Path, door: str, server: str) -> None:
    with FaultyUpstream() as up:
        target = TARGETS[door].format(url=json.dumps(up.url("ok")))
        template = "chatml" if door == "completions" else "chat"
        config = "server: {max_in_flight: 1}\n"
        config += f"models: {{m: {{template: {template}, targets: [{target}]}}}}\n"
        with SERVERS[server](tmp_path, config, files={"said.yaml": "[Hel, lo, {finish: stop}]\n"}) as served:
            body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
            client = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
            for _ in range(ASKED):
                client.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
                answer = client.getresponse()
                said = answer.read()
                assert (answer.status, said[-14:]) == (200, b"data: [DONE]\n\n")
            client.close()
            assert served.wait_until_idle()
            assert served.metric("gateway_shed_total", reason="in_flight") == 0
