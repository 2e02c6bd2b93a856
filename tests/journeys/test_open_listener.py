"""A reload that removes the keys from a listener on a public address."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.support.serving import gateway
from tests.support.world import HELLO, key_file

MODELS = "models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}\n"
KEYS = "keys: {file: keys.yaml}\n"
OPEN = 'server: {host: 0.0.0.0, allowed_hosts: ["*"]}\n'
"""The address in the file; the test's own socket is on loopback."""
BEARER = {"authorization": "Bearer gk_all"}

EDITS: dict[str, tuple[str, str, int]] = {  # the new file, the result of the reload, the status without a key
    "loopback without keys": ("server: {host: 127.0.0.1}\n" + MODELS, "error", 401),
    "no server section, no keys": (MODELS, "error", 401),
    "open without keys": (OPEN + MODELS, "error", 401),
    "loopback with keys": ("server: {host: 127.0.0.1}\n" + KEYS + MODELS, "ok", 401),
    "insecure_no_keys": (
        'server: {host: 0.0.0.0, allowed_hosts: ["*"], insecure_no_keys: true}\n' + MODELS,
        "ok",
        200,
    ),
}


@pytest.mark.parametrize(("edited", "result", "status"), EDITS.values(), ids=EDITS)
def test_a_reload_is_checked_against_the_bound_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, edited: str, result: str, status: int
) -> None:
    caplog.set_level(logging.WARNING)
    with gateway(tmp_path, OPEN + KEYS + MODELS, files={**HELLO, "keys.yaml": key_file({"gk_all": ""})}) as served:
        assert served.chat("m").status_code == 401
        (tmp_path / "gateway.yaml").write_text(edited)
        assert served.reload() == (result == "ok")
        assert served.metric("gateway_reloads_total", result=result) == 1
        assert served.chat("m").status_code == status
        assert served.http.get("/v1/models", headers=BEARER).status_code == 200
    if edited.startswith("server: {host: 127.0.0.1}") and result == "error":
        said = "gateway.yaml keys: the gateway listens on 0.0.0.0 until a restart"
        assert said in caplog.text
