"""Scaling from one worker to two: ``python -m bench.workers``, on a machine with little other load.

On two cores the load generator takes a part of what the second worker could use. So the output also holds the gateway's
CPU time per request: where it is equal for one and two workers, the workers do not slow each other down, and ``x one on
free cores`` is the speed-up with two cores for the gateway alone. ``cores`` and ``load`` are the cores that the gateway
and the load generator used. The targets are scripts inside the gateway, so no upstream process takes a part; with long
conversations the load generator's part is small.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.gateway_variants import ROOT, TEMPLATE
from bench.load.http_client import request_json
from bench.load.load_generator import run_load
from bench.processes import CORES, ChildProcess, cpu_seconds, free_port, process_cpu_seconds, session_pids
from bench.rendering.inputs import conversation

CHAT = "/v1/chat/completions"
WORKERS = (1, 2)
TURNS = (1, 200)
"""1: the cost of a call itself. 200: about a millisecond of work in the gateway, little in the load generator."""
CONNECTIONS = 32
START_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One round."""

    workers: int
    turns: int
    requests_per_second: float
    cpu_us: float
    """CPU time per request, over all processes of the gateway."""
    gateway_cores: float
    load_cores: float
    balance: float
    """CPU time of the least busy worker divided by that of the busiest."""
    errors: float


def measure(workers: int, turns: int, seconds: float, folder: Path) -> Measurement:
    """Start the gateway, warm it up for a second, and measure once."""
    with _gateway(workers, folder) as (child, port):
        body = folder / "body.json"
        body.write_text(json.dumps({"model": "bench", "messages": conversation(turns)}), encoding="utf-8")
        run_load(port, CHAT, body, {}, CONNECTIONS, 1, folder)
        # with several workers the first process is the supervisor, which serves no requests
        pids = [pid for pid in session_pids(child.session) if workers == 1 or pid != child.popen.pid]
        began, cpu, load = time.monotonic(), cpu_seconds(child.session), _load_generator_cpu_seconds()
        each = [process_cpu_seconds(pid) for pid in pids]
        counts = run_load(port, CHAT, body, {}, CONNECTIONS, seconds, folder)
        elapsed = time.monotonic() - began
        cpu, load = cpu_seconds(child.session) - cpu, _load_generator_cpu_seconds() - load
        each = [process_cpu_seconds(pid) - before for pid, before in zip(pids, each, strict=True)]
    return Measurement(
        workers=workers,
        turns=turns,
        requests_per_second=counts["requests"] / counts["seconds"],
        cpu_us=cpu / counts["requests"] * 1e6,
        gateway_cores=cpu / elapsed,
        load_cores=load / elapsed,
        balance=min(each) / max(each),
        errors=counts["errors"] + counts["bad_status"],
    )


@contextmanager
def _gateway(workers: int, folder: Path) -> Iterator[tuple[ChildProcess, int]]:
    port = free_port()
    (folder / "answer.yaml").write_text("[The sum is 42., {finish: stop}]\n", encoding="utf-8")
    (folder / "gateway.yaml").write_text(
        f"server: {{port: {port}, workers: {workers}}}\n"
        f"models: {{bench: {{template: {TEMPLATE}, targets: [{{speaks: scripted, script: answer.yaml}}]}}}}\n",
        encoding="utf-8",
    )
    shutil.copytree(ROOT / "meta_templates", folder / "meta_templates", dirs_exist_ok=True)
    cores = ",".join(str(core) for core in CORES[:workers])
    command = ["taskset", "-c", cores, sys.executable, "-m", "gateway", "serve", "--log-level", "warning"]
    with ChildProcess(command, CORES[0], folder / "log", {"PYTHONPATH": str(ROOT)}, folder) as child:
        while time.monotonic() < child.started + START_TIMEOUT:
            child.check_alive()
            try:
                request_json(port, "/v1/models")
                break
            except OSError:
                time.sleep(0.05)
        yield child, port


def _load_generator_cpu_seconds() -> float:
    """CPU time of the load generators that have exited."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure both numbers of workers in alternation and print the fastest round of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=4, help="duration of one measurement (default: 4)")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    args = parser.parse_args()
    rows = []
    for _ in range(args.rounds):
        for turns in TURNS:
            for workers in WORKERS:
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(measure(workers, turns, args.seconds, Path(folder)))
    print("turns workers    req/s  CPU us req/s per core cores  load balance errors   x one  x one on free cores")
    for turns in TURNS:
        one: Measurement | None = None
        for workers in WORKERS:
            rounds = [row for row in rows if (row.turns, row.workers) == (turns, workers)]
            best = max(rounds, key=lambda row: row.requests_per_second)
            one = one or best
            print(
                f"{turns:5} {workers:7} {best.requests_per_second:8.0f} {best.cpu_us:7.0f} {1e6 / best.cpu_us:14.0f}"
                f" {best.gateway_cores:5.2f} {best.load_cores:5.2f} {best.balance:7.2f}"
                f" {sum(row.errors for row in rounds):6.0f} {best.requests_per_second / one.requests_per_second:7.2f}"
                f" {workers * one.cpu_us / best.cpu_us:20.2f}"
            )


if __name__ == "__main__":
    main()
