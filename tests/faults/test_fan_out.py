"""Several choices from an engine that gives one for each call: each call has its own timeouts and end."""

from __future__ import annotations

import time
from pathlib import Path

from tests.faults.client import send_chat
from tests.faults.conftest import FILES, model
from tests.support.serving import Gateway, eventually, gateway
from tests.support.upstream.reply import TEXT
from tests.support.upstream.server import FaultyUpstream


def test_the_idle_timeout_does_not_apply_to_whole_answers(up: FaultyUpstream, tmp_path: Path) -> None:
    config = "models:\n" + model("slow", up.url("slow-ttfb", ms=600), extra=", engine: llamacpp", policy="short-idle")
    with gateway(tmp_path, config, files=FILES) as served:
        response = send_chat(served, "slow", n=2)
    assert (response.status, response.texts) == (200, {0: TEXT, 1: TEXT})


def test_a_choice_cut_at_its_stop_is_closed_before_the_next_begins(served: Gateway, up: FaultyUpstream) -> None:  # C19
    early = len(up.closed_early)
    started = time.monotonic()
    response = send_chat(served, "llamacpp-endless", stream=True, n=3)
    assert response.finishes == {0: "stop", 1: "stop", 2: "stop"}
    assert set(response.texts.values()) == {"The answer is 4"}
    assert time.monotonic() - started < 20
    assert eventually(lambda: len(up.closed_early) == early + 3)


def test_a_choice_that_runs_past_its_stop_does_not_delay_the_others(served: Gateway, up: FaultyUpstream) -> None:
    response = send_chat(served, "stop-then-endless", stream=True, n=2)
    assert response.finishes == {0: "stop", 1: "stop"}
