"""An endless stream of the upstream, for a client that does not stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.serving import gateway
from tests.support.upstream.server import FaultyUpstream

POLICY = "delivery: {stream_upstream: true, retry: {attempts: 1}, timeout: {total: 60s}}\n"


@pytest.mark.parametrize("template", ["chat", "chatml-tools"])
def test_folding_an_endless_stream_ends_at_the_size_limit(up: FaultyUpstream, tmp_path: Path, template: str) -> None:
    speaks = "chat" if template == "chat" else "completions"
    target = f'{{speaks: {speaks}, url: "{up.url("flood")}", model: m}}'
    config = f"models: {{m: {{template: {template}, policy: patient, targets: [{target}]}}}}\n"
    with gateway(tmp_path, config, files={"policies/patient.yaml": POLICY}) as served:
        answer = served.chat("m")
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_response_too_large")
        assert served.wait_until_idle()
        assert up.wait(lambda: up.active == 0)
