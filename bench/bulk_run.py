"""``gateway run`` beside wrk, and killed: ``python -m bench.bulk_run``, on a machine with little other load.

Throughput: wrk, ``gateway run --base-url`` and ``gateway run`` in one process, without and with recording, in
alternation, each with 32 requests under way and the same mock engine. wrk and the first ``gateway run`` load the same
gateway, from the same core. The others have the gateway inside, on the gateway's core. The start of a run is not
counted; its rows and seconds are those of its manifest.

``--kill``: a run of ``--rows`` rows is killed with SIGKILL three times and started again, with ``--base-url`` to a
gateway that records, and in one process. The output and the recordings are then checked.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from statistics import median

from bench.gateway_variants import RECORDINGS, ROOT
from bench.load.load_generator import load_generator_name, run_load
from bench.processes import LOAD_CORE, SYSTEM_CORE, ChildProcess, MeasurementError, set_up_process
from bench.scenarios import SCENARIOS
from bench.systems import SYSTEMS, environment
from bench.testbed import RunningSystem, Testbed

SCENARIO = SCENARIOS["nonstream@32"]
KILLS = 3
COMPLETE = """SELECT request_id FROM calls JOIN exchanges ON call = calls.id
    WHERE outcome = 'ok' AND json_extract(answer, '$[0].finish_reason') = 'stop' AND instr(events, '"Finish"')"""


def write_rows(folder: Path, body: bytes, rows: int) -> Path:
    """Write a data file with ``rows`` equal requests; each line has its number as ``custom_id``."""
    path = folder / "rows.jsonl"
    fields = json.loads(body)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            file.write(json.dumps({"custom_id": str(number), **fields}) + "\n")
    return path


def start_run(running: RunningSystem, data: Path, out: Path, *, remote: bool, recording: bool = True) -> ChildProcess:
    """Start ``gateway run`` on the load generator's core, or with the gateway inside on the gateway's core."""
    where = ["--config", str(running.context.folder / "gateway.yaml")]
    if remote:
        where = ["--base-url", f"http://127.0.0.1:{running.context.port}/v1"]
    options = [str(data), "--out", str(out), "--concurrency", str(SCENARIO.concurrency), *where]
    options += [] if recording else ["--no-recording"]
    core = LOAD_CORE if remote else SYSTEM_CORE
    command = [sys.executable, "-m", "gateway", "run", *options]
    return ChildProcess(command, core, out.with_suffix(".log"), environment(running.system), ROOT)


def rate_of_run(running: RunningSystem, data: Path, *, remote: bool, recording: bool = True) -> float:
    """Rows per second of one ``gateway run``."""
    out, manifest = data.with_name("out.jsonl"), data.with_name("out.manifest.json")
    with start_run(running, data, out, remote=remote, recording=recording) as child:
        child.popen.wait(600)
    if child.popen.returncode:
        raise MeasurementError(f"the run failed: {child.log.read_text(encoding='utf-8')[-300:]}")
    run = json.loads(manifest.read_bytes())["runs"][-1]
    for path in (out, manifest, data.with_name("out.recording.sqlite")):
        path.unlink(missing_ok=True)
    return float(run["rows"] / run["seconds"])


def throughput(running: RunningSystem, body: Path, data: Path, seconds: float) -> dict[str, float]:
    """Requests per second of one round."""
    context = running.context
    counts = run_load(context.port, running.system.path, body, {}, SCENARIO.concurrency, seconds, context.folder)
    if counts["errors"] or counts["bad_status"]:
        raise MeasurementError("the load generator had errors")
    return {
        load_generator_name(): counts["requests"] / counts["seconds"],
        "gateway run --base-url": rate_of_run(running, data, remote=True),
        "gateway run --no-recording": rate_of_run(running, data, remote=False, recording=False),
        "gateway run": rate_of_run(running, data, remote=False),
    }


def kill_and_resume(running: RunningSystem, data: Path, rows: int, *, remote: bool) -> str:
    """Kill a run three times on its way, finish it, and return what the output and the recordings hold."""
    out = data.with_name("remote.jsonl" if remote else "local.jsonl")
    at: list[int] = []
    for kill in range(1, KILLS + 1):
        size = 0
        with start_run(running, data, out, remote=remote) as child:
            while size < rows * kill // (KILLS + 1):
                child.check_alive()
                time.sleep(0.01)
                size = out.read_bytes().count(b"\n") if out.exists() else 0
            child.popen.kill()
            child.popen.wait()
        at.append(out.read_bytes().count(b"\n"))
    with start_run(running, data, out, remote=remote) as child:
        code = child.popen.wait(600)
    lines = [json.loads(line) for line in out.read_bytes().splitlines()]
    ids = Counter(line["custom_id"] for line in lines)
    once = sum(ids[str(number)] == 1 for number in range(rows))
    runs = [run["rows_before"] for run in json.loads(out.with_suffix(".manifest.json").read_bytes())["runs"]]
    time.sleep(1)  # a gateway that goes on writes the last recordings a moment later
    with closing(sqlite3.connect(data.with_name(RECORDINGS if remote else "local.recording.sqlite"))) as file:
        complete = Counter(name for (name,) in file.execute(COMPLETE))
        (calls,) = file.execute("SELECT count(*) FROM calls WHERE endpoint = 'chat' AND outcome = 'ok'").fetchone()
    recorded = sum(complete[line["response"]["request_id"]] == 1 for line in lines)
    return (
        f"killed with SIGKILL at {at} rows, resumed at {runs[1:]}; exit code {code}; "
        f"{ids.total()} lines, {once} of {rows} rows exactly once, {recorded} with exactly one complete recording; "
        f"{calls - recorded} recordings of answers whose line was killed, {calls - complete.total()} partial ones"
    )


def main() -> None:
    """Measure in rounds, print each round and the median ratios; with ``--kill``, kill and resume."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000, help="rows of one run (default: 10000)")
    parser.add_argument("--seconds", type=float, default=2, help="duration of wrk (default: 2)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--kill", action="store_true", help="kill and resume instead of measuring throughput")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench", help="where nginx is kept (default: .bench)")
    args = parser.parse_args()
    set_up_process()
    with tempfile.TemporaryDirectory() as folder, Testbed(args.cache, Path(folder)) as testbed:
        running = testbed.running_system(SYSTEMS["gateway+recording" if args.kill else "gateway"], streaming=False)
        body = running.write_request_body(SCENARIO, stream=False)
        assert body is not None
        data = write_rows(running.context.folder, body.read_bytes(), args.rows)
        if args.kill:
            for remote in (True, False):
                print(
                    "--base-url:" if remote else "in process:", kill_and_resume(running, data, args.rows, remote=remote)
                )
            return
        throughput(running, body, data, 1)  # warm-up
        rounds = [throughput(running, body, data, args.seconds) for _ in range(args.rounds)]
    first, *others = rounds[0]
    for rates in rounds:
        print("  ".join(f"{name} {rate:.0f}/s" for name, rate in rates.items()))
    for name, base in [*[(name, first) for name in others], ("gateway run", "gateway run --no-recording")]:
        ratios = sorted(rates[name] / rates[base] for rates in rounds)
        print(f"{name}: {median(ratios):.2f} times {base} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
