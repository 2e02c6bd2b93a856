"""Times the pages of many recorded calls: ``python -m tests.viewer.large --calls 10000``.

``Recorder`` writes the file, with 200 events for each call. A gateway serves it; the table shows the seconds of each
page, the median and the longest of ``--times`` requests.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from gateway.config.snapshot import RecordingsSpec
from gateway.core.call import Call
from gateway.core.exchange import Exchange, RecordedExchange
from gateway.storage.recorder import CallFacts, Recorder
from gateway.telemetry.record import Record
from metatemplate.values.events import Delta, Event, Finish, Usage
from tests.support.serving import gateway
from tests.viewer.browsing import Browser, token_of

EVENTS = 200
CONFIG = (
    "recordings: {path: calls.sqlite}\nmodels: {m0: {template: chatml, targets: [{speaks: scripted, script: s.yaml}]}}"
)
PAGES = {
    "list": "",
    "list, older": "?before=5000",
    "model": "?model=m3",
    "key": "?key=key-7",
    "outcome ok": "?outcome=ok",
    "outcome of few": "?outcome=upstream_error",
    "notice of few": "?notice=merged_turns",
    "cut of few": "?cut=context",
    "run": "?run=run-2",
    "no such model": "?model=none",
    "no such notice": "?notice=none",
    "model, key and cut": "?model=m3&key=key-7&cut=length",
    "one call": "/req_5000",
}


def write_calls(path: Path, count: int) -> float:
    """Write the calls; return the seconds."""
    spec, recorder, started = RecordingsSpec(keep_all=True), Recorder(path, sys.exit), time.perf_counter()
    end: list[Event] = [Finish(0, "stop"), Usage(100, EVENTS)]
    events = [*[Delta(0, f"word{at} ") for at in range(EVENTS)], *end]
    moments = [(0.01 * at, event) for at, event in enumerate(events)]
    for number in range(count):
        if recorder.is_full:
            recorder.flush().result()
        call = Call("chat", f"m{number % 5}", f"req_{number}")
        facts = CallFacts("default", run=f"run-{number % 4}", row=f"row-{number}", call=call)
        recording = recorder.begin("full", facts, spec)
        sent = Exchange("completions", call.request_id, ("<u>What is the sum? " * 50,), params={"temperature": 0})
        recording.exchanges.append(RecordedExchange(sent, time.time(), moments, list(events)))
        recording.notices = ["merged_turns: 2"] if number % 2000 == 1999 else ["clamped_parameter: max_tokens=2048"]
        outcome = "upstream_error" if number % 500 == 499 else "ok"
        cut = ("context",) if number % 1000 == 3 else ("length",) if number % 5 == 3 else ()
        recording.end(
            Record(
                call.request_id,
                "chat",
                call.model,
                outcome,
                200,
                False,
                1.0,
                template="t",
                target="m/0",
                key=f"key-{number % 10}",
                answers_cut=cut,
                stop_cuts=("engine",),
                prompt_tokens=100,
            )
        )
    recorder.close()
    return time.perf_counter() - started


def main() -> None:
    """Write the file, ask for each page, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds, path = write_calls(folder / "calls.sqlite", options.calls), folder / "calls.sqlite"
        print(f"{options.calls} calls written in {seconds:.1f} s, {path.stat().st_size / 2**20:.0f} MiB")
        with gateway(folder, CONFIG, files={"s.yaml": "[Hello, {finish: stop}]"}) as served:
            browser = Browser(served.root)
            browser.get(f"/viewer?token={token_of(served)}")
            print(f"{'page':<20} {'median ms':>10} {'longest ms':>10} {'kB':>6}")
            for title, query in PAGES.items():
                times = []
                for _ in range(options.times):
                    started = time.perf_counter()
                    page = browser.get(f"/viewer/recordings{query}")
                    times.append((time.perf_counter() - started) * 1000)
                assert page.status_code == 200
                assert "cannot be read" not in page.text
                print(f"{title:<20} {median(times):>10.1f} {max(times):>10.1f} {len(page.content) / 1000:>6.0f}")


if __name__ == "__main__":
    main()
