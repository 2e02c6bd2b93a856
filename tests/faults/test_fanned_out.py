"""Several choices from an engine that gives one at a time: each call has its own clocks, and its own end."""

from __future__ import annotations

import time
from pathlib import Path

from tests.faults.conftest import model, write_files
from tests.faults.reading import ask
from tests.serving import Gateway, eventually, gateway
from tests.upstream.reply import TEXT
from tests.upstream.server import FaultyUpstream


def test_a_slow_whole_answer_is_not_cut_by_the_clock_of_streams(up: FaultyUpstream, tmp_path: Path) -> None:
    write_files(tmp_path)
    config = "models:\n" + model("slow", up.url("slow-ttfb", ms=600), extra=", engine: llamacpp", policy="fast")
    with gateway(tmp_path, config) as served:
        read = ask(served, "slow", n=2)
    assert (read.status, read.texts) == (200, {0: TEXT, 1: TEXT})


def test_a_choice_cut_at_its_stop_is_closed_before_the_next_begins(faulty: Gateway, up: FaultyUpstream) -> None:  # C19
    early = len(up.closed_early)
    started = time.monotonic()
    read = ask(faulty, "llamacpp-endless", stream=True, n=3)
    assert read.finishes == {0: "stop", 1: "stop", 2: "stop"}
    assert set(read.texts.values()) == {"The answer is 4"}
    assert time.monotonic() - started < 20
    assert eventually(lambda: len(up.closed_early) == early + 3)


def test_an_engine_that_ignores_n_and_runs_past_its_stop_does_not_hold_up_the_rest(
    faulty: Gateway, up: FaultyUpstream
) -> None:
    read = ask(faulty, "stop-then-endless", stream=True, n=2)
    assert read.finishes == {0: "stop", 1: "stop"}
