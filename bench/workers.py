"""Do two workers serve twice as much as one? ``python -m bench.workers``, by hand, on a machine with little else to do.

On two cores the load generator takes its part of what the second worker could have. So beside the requests per
second of one worker on one core, and of two on both, stands the gateway's processor time for each request: where it
stays the same the workers do not stand in each other's way, and each core that is free for one adds ``req/s per
core`` and the last column says what two free cores would come to. ``cores`` and ``load`` tell how many cores gateway
and generator really had. The targets are scripts inside the
gateway, so no engine takes a part; long conversations make the generator's part small.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.ask import ask_json
from bench.calls import drive
from bench.conversation import conversation
from bench.processes import Child, cpu_seconds, free_port, members, running
from bench.variants import ROOT, TEMPLATE

CHAT = "/v1/chat/completions"
WORKERS = (1, 2)
TURNS = (1, 200)
"""Short: the cost of a call itself. Long: the gateway works a millisecond, the generator sends what lies ready."""
CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    workers: int
    turns: int
    per_second: float
    cpu_us: float
    """The gateway's processor time for one request, all its processes together."""
    cores: float
    """Cores that the gateway had."""
    load: float
    """Cores that the load generator had."""
    evenness: float
    """The least busy worker's processor time over the busiest one's."""
    errors: float


def measure(workers: int, turns: int, seconds: float, folder: Path) -> Row:
    """One start, a second to warm up, one measurement."""
    with _gateway(workers, folder) as (child, port):
        body = folder / "body.json"
        messages = [{"role": role, "content": text} for role, text in conversation(turns)]
        body.write_text(json.dumps({"model": "bench", "messages": messages}), encoding="utf-8")
        drive(port, CHAT, body, {}, CONNECTIONS, 1, folder)
        began, cpu, each, load = time.monotonic(), cpu_seconds(child.session), _each(child, workers), _load()
        counts = drive(port, CHAT, body, {}, CONNECTIONS, seconds, folder)
        took, cpu, load = time.monotonic() - began, cpu_seconds(child.session) - cpu, _load() - load
        busy = [after - each[pid] for pid, after in _each(child, workers).items()]
    return Row(
        workers,
        turns,
        counts["requests"] / counts["seconds"],
        cpu / counts["requests"] * 1e6,
        cpu / took,
        load / took,
        min(busy) / max(busy),
        counts["errors"] + counts["bad_status"],
    )


@contextmanager
def _gateway(workers: int, folder: Path) -> Iterator[tuple[Child, int]]:
    port = free_port()
    (folder / "answer.yaml").write_text("[The sum is 42., {finish: stop}]\n", encoding="utf-8")
    (folder / "gateway.yaml").write_text(
        f"server: {{port: {port}, workers: {workers}}}\n"
        f"models: {{bench: {{template: {TEMPLATE}, targets: [{{speaks: scripted, script: answer.yaml}}]}}}}\n",
        encoding="utf-8",
    )
    shutil.copytree(ROOT / "meta_templates", folder / "meta_templates", dirs_exist_ok=True)
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:workers])
    command = ["taskset", "-c", cores, sys.executable, "-m", "gateway", "serve", "--log-level", "warning"]
    child = Child(command, 0, folder / "log", {"PYTHONPATH": str(ROOT)}, folder)
    with running(child):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            child.check()
            try:
                ask_json(port, "/v1/models")
                break
            except OSError:
                time.sleep(0.05)
        yield child, port


def _each(child: Child, workers: int) -> dict[int, float]:
    """Serving process → its processor seconds; the supervisor of several is none."""
    serving = [pid for pid in members(child.session) if workers == 1 or pid != child.popen.pid]
    ticks = {pid: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in serving}
    return {pid: (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") for pid, (user, system) in ticks.items()}


def _load() -> float:
    """Processor seconds of the load generators that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure, one and two in turn, and print each one's best round: other work on the machine only ever takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for _ in range(args.rounds):
        for turns in TURNS:
            for workers in WORKERS:
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(measure(workers, turns, args.seconds, Path(folder)))
    print("turns workers    req/s  CPU us req/s per core cores  load  even errors   x one  x one on free cores")
    for turns in TURNS:
        one: Row | None = None
        for workers in WORKERS:
            of = [row for row in rows if (row.turns, row.workers) == (turns, workers)]
            best = max(of, key=lambda row: row.per_second)
            one = one or best
            print(
                f"{turns:5} {workers:7} {best.per_second:8.0f} {best.cpu_us:7.0f} {1e6 / best.cpu_us:14.0f}"
                f" {best.cores:5.2f} {best.load:5.2f} {best.evenness:5.2f} {sum(row.errors for row in of):6.0f}"
                f" {best.per_second / one.per_second:7.2f} {workers * one.cpu_us / best.cpu_us:20.2f}"
            )


if __name__ == "__main__":
    main()
