"""How is each kind of scenario measured? One function a kind; each gives the numbers of one subject in one round."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import calls
from bench.ask import ask_json
from bench.interpreter import OtherPython, check_same
from bench.lab import Lab, Running, headers_json
from bench.processes import LOAD, PROXY, Child, Unfit, cpu_seconds, rss_bytes, running
from bench.scenarios import Scenario
from bench.subjects import Subject, environment
from bench.variants import ROOT

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work one run may be."""

    seconds: float = 3.0
    """Of one measurement."""
    warm: float = 1.0
    """Of load before a subject's first measurement in a scenario; 0: none."""
    most: int = 100_000
    """Connections or streams at most."""
    opencompass: Path | None = None
    """A Python that has OpenCompass, for comparison."""
    lazyllm: Path | None = None
    """One that has LazyLLM."""
    any_python: bool = False
    """Compare with originals that run on another build of Python."""


SETTLE = 1.0
"""Seconds between opening the idle streams and looking at the memory."""
WARM = 1.0
"""Seconds in which the streams of a scenario are started, evenly."""
FREED = 10.0
"""Seconds the upstream's streams may take to end after all clients have left."""


def measure_calls(lab: Lab, subject: Subject, scenario: Scenario, effort: Effort, first: bool) -> Numbers:
    """Whole answers a second."""
    run = lab.started(subject, fast=True)
    count = min(scenario.count, effort.most)
    request = lab.request_file(run, scenario, stream=False)
    headers = dict(run.subject.headers(run.place))
    if first and effort.warm:
        calls.drive(run.place.port, subject.path, request, headers, count, effort.warm, run.place.folder)
    hits, cpu = run.engine.hits(), cpu_seconds(run.session) if run.session else 0.0
    seen = calls.drive(run.place.port, subject.path, request, headers, count, effort.seconds, run.place.folder)
    used = (cpu_seconds(run.session) if run.session else 0.0) - cpu
    good = seen["requests"] - seen["bad_status"]
    if good < 1 or seen["bad_status"] > 0.01 * seen["requests"]:
        raise Unfit(f"{seen['bad_status']:.0f} of {seen['requests']:.0f} answers were no 200")
    return {
        "requests_per_second": good / seen["seconds"],
        "p50_ms": seen["p50_ms"],
        "p99_ms": seen["p99_ms"],
        "errors": seen["errors"] + seen["bad_status"],
        "upstream_per_request": (run.engine.hits() - hits) / seen["requests"],
        **({"cpu_us": used / seen["requests"] * 1e6, "load": used / seen["seconds"]} if run.session else {}),
    }


def measure_streams(lab: Lab, subject: Subject, scenario: Scenario, effort: Effort, first: bool) -> Numbers:
    """Events on time."""
    run = lab.started(subject, fast=False)
    run.engine.pace(scenario)
    command = _client("paced", lab, run, scenario, effort)
    command += ["--seconds", str(effort.seconds), "--warm", str(min(WARM, effort.seconds))]
    command += ["--session", str(run.session)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=effort.seconds + 60, check=False, cwd=ROOT)
    if done.returncode:
        raise Unfit(f"the stream client failed: {done.stderr.strip()[-200:]}")
    seen = json.loads(done.stdout.splitlines()[-1])
    if not seen["events"]:
        raise Unfit(f"no event came through: {seen['reason'] or 'nothing was said'}")
    due = min(scenario.count, effort.most) * seen["seconds"] * 1000 / scenario.gap_ms
    return {
        "events_per_second": seen["events"] / seen["seconds"],
        "share_of_due": seen["events"] / due,
        "first_p50_ms": seen["first_ms"][0],
        "first_p99_ms": seen["first_ms"][1],
        "delay_p50_ms": seen["delay_ms"][0],
        "delay_p99_ms": seen["delay_ms"][1],
        "delay_max_ms": seen["delay_ms"][2],
        "errors": seen["errors"],
        **(
            {"cpu_us": seen["cpu_seconds"] / seen["events"] * 1e6, "load": seen["cpu_seconds"] / seen["seconds"]}
            if run.session
            else {}
        ),
    }


def measure_idle(lab: Lab, subject: Subject, scenario: Scenario, effort: Effort, first: bool) -> Numbers:
    """Memory of waiting streams, and how soon the upstream's end when their readers leave; a new process each time."""
    with lab.fresh(subject, fast=False) as run:
        run.engine.pace(scenario)
        bare = rss_bytes(run.session)
        client = Child(
            _client("idle", lab, run, scenario, effort), LOAD, run.place.folder / "client.log", cwd=ROOT, pipes=True
        )
        with running(client):
            began = time.monotonic()
            ready = json.loads(_line(client) or "{}")
            wanted = min(scenario.count, effort.most)
            if ready.get("ready", 0) < wanted:
                raise Unfit(f"{ready.get('ready', 0)} of {wanted} streams began: {ready.get('reason', '')}")
            opened = time.monotonic() - began
            settle = min(SETTLE, effort.seconds)
            time.sleep(settle)
            full, cpu = rss_bytes(run.session), cpu_seconds(run.session)
            time.sleep(settle)
            resting = (cpu_seconds(run.session) - cpu) / settle
            assert client.popen.stdin is not None
            client.popen.stdin.write(b"leave\n")
            client.popen.stdin.flush()
            left = json.loads(_line(client) or "{}")
            running_on, freed = _freed(run)
        return {
            "kb_per_stream": (full - bare) / wanted / 1024,
            "rss_mb": full / 1e6,
            "added_mb": (full - bare) / 1e6,
            "open_seconds": opened,
            "idle_load": resting,
            **({"left_running": running_on} if running_on else {"freed_ms": (freed - left["closed_ns"]) / 1e6}),
        }


def measure_startup(lab: Lab, subject: Subject, scenario: Scenario, effort: Effort, first: bool) -> Numbers:
    """A new process each time: how long to its first answer, and how large it is then."""
    with lab.fresh(subject, fast=False) as run:
        time.sleep(min(SETTLE, effort.seconds))
        return {"ready_seconds": run.started, "rss_mb": rss_bytes(run.session) / 1e6}


def measure_sdk(lab: Lab, subject: Subject, scenario: Scenario, effort: Effort, first: bool) -> Numbers:
    """The SDK in a loop; anything else as whole answers."""
    if subject.name != "litellm-sdk":
        return measure_calls(lab, subject, scenario, effort, first)
    engine = lab.engine(fast=True)
    tasks = min(scenario.count, effort.most)
    command = [sys.executable, "-m", "bench.sdk", str(engine.port), str(tasks), str(effort.seconds)]
    return _json_of(lab, command, subject, effort.seconds + 90)


ORIGINALS = ("opencompass", "lazyllm")
"""Subjects of the renders that have a Python of their own, and a script beside this file."""


def measure_renders(lab: Lab, subject: Subject, scenario: Scenario, effort: Effort, first: bool) -> Numbers:
    """Prompts a second, of each template and length."""
    each = str(min(effort.seconds / 12, 0.25))
    if subject.name not in ORIGINALS:
        return _rendered(lab, [sys.executable, "-m", "bench.renders", each], subject)[0]
    python = getattr(effort, subject.name)
    if python is None:
        raise Unfit(f"no Python that has it was given (--{subject.name})")
    script = str(ROOT / "bench" / f"renders_{subject.name}.py")
    numbers, theirs = _rendered(lab, [str(python), script, each], subject)
    if not effort.any_python:
        try:
            check_same(subject.name, theirs)
        except OtherPython as error:  # another one than it was when the run began
            raise Unfit(str(error)) from error
    return numbers


def _rendered(lab: Lab, command: list[str], subject: Subject) -> tuple[Numbers, str]:
    """What ``interpreter.report`` has printed: the numbers, and the Python they are of."""
    said: Any = _json_of(lab, command, subject, 120)
    return said["numbers"], said["python"]


KINDS: Mapping[str, Callable[[Lab, Subject, Scenario, Effort, bool], Numbers]] = {
    "calls": measure_calls,
    "streams": measure_streams,
    "idle": measure_idle,
    "startup": measure_startup,
    "sdk": measure_sdk,
    "renders": measure_renders,
}


def _client(mode: str, lab: Lab, run: Running, scenario: Scenario, effort: Effort) -> list[str]:
    request = lab.request_file(run, scenario, stream=True)
    streams = min(scenario.count, effort.most)
    return [
        *(sys.executable, "-m", "bench.streams", mode, "--port", str(run.place.port), "--path", run.subject.path),
        *("--body", str(request), "--headers", headers_json(run), "--streams", str(streams)),
    ]


def _line(client: Child) -> str:
    """The client's next line; it bounds its own work."""
    assert client.popen.stdout is not None
    return client.popen.stdout.readline().decode()


def _freed(run: Running) -> tuple[int, float]:
    """Streams that still run upstream in the end, and when the last ended on the monotonic clock in nanoseconds."""
    end = time.monotonic() + FREED
    while time.monotonic() < end:
        seen = ask_json(run.engine.port, "/bench/counters")
        if seen["active"] == 0:
            break
        time.sleep(0.02)
    return seen["active"], float(seen["last_early_ns"])


def _json_of(lab: Lab, command: list[str], subject: Subject, seconds: float) -> Numbers:
    """The last line that a process on the measured core prints."""
    folder = lab.new_folder(subject.name)
    child = Child(command, PROXY, folder / "log", environment(subject), ROOT, pipes=True)
    with running(child):
        try:
            output, _ = child.popen.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Unfit(f"no result after {seconds:.0f} s") from None
        if child.popen.returncode:
            child.check()
    try:
        numbers: Numbers = json.loads(output.splitlines()[-1])
    except (ValueError, IndexError):
        raise Unfit("the last line that it printed is not JSON") from None
    return numbers
