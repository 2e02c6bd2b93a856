"""Times the pages of many recorded calls: ``python -m tests.viewer.large --calls 10000``.

``Recorder`` writes the file, with 200 events for each call. A gateway serves it; the table shows the seconds of each
page: of the first request, then the median and the longest of the others.
"""

from __future__ import annotations

import argparse
import re
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
PAIR = "a=key-1/run-1&b=key-2/run-2"
PAGES = {
    "list": "recordings",
    "list, older": "recordings?before=5000",
    "model": "recordings?model=m3",
    "key": "recordings?key=key-3",
    "outcome ok": "recordings?outcome=ok",
    "outcome of few": "recordings?outcome=upstream_error",
    "notice of few": "recordings?notice=merged_turns",
    "cut of few": "recordings?cut=context",
    "run": "recordings?run=run-2",
    "no such model": "recordings?model=none",
    "no such notice": "recordings?notice=none",
    "model, key and cut": "recordings?model=m3&key=key-3&cut=length",
    "one call": "recordings/req_5000",
    "runs": "runs",
    "report": "runs/report?run=key-2/run-2",
    "rows": "runs/rows?run=key-2/run-2",
    "last rows": "runs/rows?run=key-2/run-2&start=2450",
    "row": "runs/row?run=key-2/run-2&row=row-600",
    "why": f"runs/why?{PAIR}",
    "rows of why": f"runs/rows?{PAIR}&cause=prompt",
    "last rows of why": f"runs/rows?{PAIR}&start=1200",
    "row of why": f"runs/row?{PAIR}&row=row-600",
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
        facts = CallFacts("default", run=f"run-{number % 4}", row=f"row-{number // 4}", call=call)
        recording = recorder.begin("full", facts, spec)
        sent = Exchange(
            "completions", call.request_id, ("<u>What is the sum? " * 50 + facts.run,), params={"temperature": 0}
        )
        answer = [*events[:-3], Delta(0, f"word of {facts.run}"), *end] if number % 8 < 4 else events
        recording.exchanges.append(RecordedExchange(sent, time.time(), moments, answer))
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
                key=f"key-{number % 4}",
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
            print(f"{'page':<20} {'first ms':>9} {'median ms':>10} {'longest ms':>10} {'kB':>6} {'rows':>5}")
            for title, address in PAGES.items():
                times = []
                for _ in range(options.times):
                    started = time.perf_counter()
                    page = browser.get(f"/viewer/{address}")
                    times.append((time.perf_counter() - started) * 1000)
                assert page.status_code == 200
                assert "cannot be read" not in page.text
                bodies = re.findall(r"<tbody>.*?</tbody>", page.text, re.DOTALL)
                rows = max([one.count("<tr") for one in bodies], default=0)
                columns = f"{times[0]:>9.1f} {median(times[1:]):>10.1f} {max(times[1:]):>10.1f}"
                print(f"{title:<20} {columns} {len(page.content) / 1000:>6.0f} {rows:>5}")
                assert rows <= 51 or title == "one call", "a page has at most 50 rows"


if __name__ == "__main__":
    main()
