"""The log says once that a client key expires soon, and once that it has expired."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from metatemplate.values.words import utc
from tests.support.serving import eventually, gateway

CONFIG = """\
keys: {file: keys.yaml}
models: {m: {template: chat, targets: [{speaks: scripted, script: hello.yaml}]}}
"""
DAY = 24 * 3600
ADVICE = (
    "; set a later expires in the key file, make a new key (gateway keys new NAME --write), or remove this one "
    "(gateway keys revoke {})"
)


def test_each_expiring_key_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    (tmp_path / "hello.yaml").write_text("[Hello, {finish: stop}]\n")
    ends = {"old": "2020-01-01", "now": utc(time.time() + 3), "soon": utc(time.time() + 3 * DAY)}
    ends |= {"later": utc(time.time() + 30 * DAY)}
    keys = [f'{name}: {{sha256: "{number:064d}", expires: {end}}}\n' for number, (name, end) in enumerate(ends.items())]
    (tmp_path / "keys.yaml").write_text("".join(keys))
    with gateway(tmp_path, CONFIG) as served:
        assert eventually(lambda: f"the client key now expired at {ends['now']}" in caplog.text)
        assert served.reload()
        (tmp_path / "keys.yaml").write_text("".join(keys) + f'new: {{sha256: "{9:064d}", expires: 2021-01-01}}\n')
        assert served.reload()
        assert eventually(lambda: "the client key new expired at" in caplog.text)
    told = [line for line in caplog.messages if " soon, " not in line]
    assert told == [
        f"the client key old expired at 2020-01-02T00:00:00Z{ADVICE.format('old')}",
        f"the client key now expired at {ends['now']}{ADVICE.format('now')}",
        f"the client key new expired at 2021-01-02T00:00:00Z{ADVICE.format('new')}",
    ]
    soon = f"the client key soon expires soon, at {ends['soon']}{ADVICE.format('soon')}"
    assert caplog.messages.count(soon) == 1
    assert "client key later" not in caplog.text
