"""One function for each kind of scenario; it returns the metrics of one system in one round."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gateway_variants import ROOT
from bench.load.http_client import request_json
from bench.load.load_generator import run_load
from bench.processes import LOAD_CORE, SYSTEM_CORE, ChildProcess, MeasurementError, rss_bytes
from bench.rendering.python_build import DifferentPython, check_same_build
from bench.scenarios import Scenario
from bench.systems import System, environment
from bench.testbed import RunningSystem, Testbed

Metrics = dict[str, float]

WARM_UP = 1.0
"""Seconds of load before a system's first measurement in a scenario, and seconds over which streams are started."""
SETTLE = 1.0
"""Seconds between opening the idle streams and reading the memory."""
FREE_TIMEOUT = 10.0
"""Seconds for the upstream's streams to end after all clients have disconnected."""
REFERENCE_PACKAGES = ("opencompass", "lazyllm")
"""Systems of the scenario ``renders`` that run on a Python of their own."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options that apply to every measurement."""

    seconds: float = 3.0
    """Duration of one measurement."""
    warm_up: bool = True
    max_concurrency: int = 100_000
    """Limit of connections or streams."""
    opencompass: Path | None = None
    """A Python with OpenCompass installed."""
    lazyllm: Path | None = None
    """A Python with LazyLLM installed."""
    any_python: bool = False
    """Accept reference packages on another build of Python."""


def measure_nonstream(
    testbed: Testbed, system: System, scenario: Scenario, options: RunOptions, first_round: bool
) -> Metrics:
    """Throughput, latency and CPU time of non-streamed requests."""
    running = testbed.running_system(system, streaming=False)
    body, headers = running.write_request_body(scenario, stream=False), running.headers()

    def load(seconds: float) -> dict[str, float]:
        connections = min(scenario.concurrency, options.max_concurrency)
        context = running.context
        return run_load(context.port, system.path, body, headers, connections, seconds, context.folder)

    if first_round and options.warm_up:
        load(WARM_UP)
    upstream_before, cpu_before = running.upstream.request_count(), running.cpu_seconds()
    counts = load(options.seconds)
    cpu = running.cpu_seconds() - cpu_before
    succeeded = counts["requests"] - counts["bad_status"]
    if succeeded < 1 or counts["bad_status"] > 0.01 * counts["requests"]:
        raise MeasurementError(
            f"{counts['bad_status']:.0f} of {counts['requests']:.0f} responses had another status than 200"
        )
    return {
        "requests_per_second": succeeded / counts["seconds"],
        "p50_ms": counts["p50_ms"],
        "p99_ms": counts["p99_ms"],
        "errors": counts["errors"] + counts["bad_status"],
        "upstream_per_request": (running.upstream.request_count() - upstream_before) / counts["requests"],
        **_cpu_metrics(running, cpu, counts["requests"], counts["seconds"]),
    }


def measure_streams(
    testbed: Testbed, system: System, scenario: Scenario, options: RunOptions, first_round: bool
) -> Metrics:
    """Time to the first token, delay and CPU time of streamed events."""
    running = testbed.running_system(system, streaming=True)
    running.upstream.configure_streams(scenario)
    command = _stream_client("paced", running, scenario, options)
    command += ["--seconds", str(options.seconds), "--warm", str(min(WARM_UP, options.seconds))]
    command += ["--session", str(running.session)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds + 60, check=False, cwd=ROOT)
    if done.returncode:
        raise MeasurementError(f"the stream client failed: {done.stderr.strip()[-200:]}")
    counts = json.loads(done.stdout.splitlines()[-1])
    if not counts["events"]:
        raise MeasurementError(f"no event was received: {counts['first_error'] or 'no error was reported'}")
    events_due = min(scenario.concurrency, options.max_concurrency) * counts["seconds"] * 1000 / scenario.interval_ms
    return {
        "events_per_second": counts["events"] / counts["seconds"],
        "share_of_due": counts["events"] / events_due,
        "first_p50_ms": counts["first_ms"][0],
        "first_p99_ms": counts["first_ms"][1],
        "delay_p50_ms": counts["delay_ms"][0],
        "delay_p99_ms": counts["delay_ms"][1],
        "delay_max_ms": counts["delay_ms"][2],
        "errors": counts["errors"],
        **_cpu_metrics(running, counts["cpu_seconds"], counts["events"], counts["seconds"]),
    }


def measure_idle(
    testbed: Testbed, system: System, scenario: Scenario, options: RunOptions, first_round: bool
) -> Metrics:
    """Memory of idle streams, and time until the upstream's streams end after all clients disconnect. A new process."""
    with testbed.start_system(system, streaming=True) as running:
        running.upstream.configure_streams(scenario)
        rss_before = rss_bytes(running.session)
        command = _stream_client("idle", running, scenario, options)
        with ChildProcess(command, LOAD_CORE, running.context.folder / "client.log", cwd=ROOT, pipes=True) as client:
            began = time.monotonic()
            opened = json.loads(_read_line(client) or "{}")
            wanted = min(scenario.concurrency, options.max_concurrency)
            if opened.get("ready", 0) < wanted:
                raise MeasurementError(
                    f"{opened.get('ready', 0)} of {wanted} streams started: {opened.get('first_error', '')}"
                )
            open_seconds = time.monotonic() - began
            settle = min(SETTLE, options.seconds)
            time.sleep(settle)
            rss, cpu = rss_bytes(running.session), running.cpu_seconds()
            time.sleep(settle)
            idle_cpu = (running.cpu_seconds() - cpu) / settle
            assert client.popen.stdin is not None
            client.popen.stdin.write(b"close\n")
            client.popen.stdin.flush()
            closed = json.loads(_read_line(client) or "{}")
            left_running, last_abort_ns = _wait_for_free_upstream(running)
        return {
            "kb_per_stream": (rss - rss_before) / wanted / 1024,
            "rss_mb": rss / 1e6,
            "added_mb": (rss - rss_before) / 1e6,
            "open_seconds": open_seconds,
            "idle_core_busy": idle_cpu,
            **(
                {"left_running": left_running}
                if left_running
                else {"freed_ms": (last_abort_ns - closed["closed_ns"]) / 1e6}
            ),
        }


def measure_startup(
    testbed: Testbed, system: System, scenario: Scenario, options: RunOptions, first_round: bool
) -> Metrics:
    """Time from start to the first response, and memory afterwards. A new process."""
    with testbed.start_system(system, streaming=True) as running:
        time.sleep(min(SETTLE, options.seconds))
        return {"ready_seconds": running.ready_seconds, "rss_mb": rss_bytes(running.session) / 1e6}


def measure_litellm(
    testbed: Testbed, system: System, scenario: Scenario, options: RunOptions, first_round: bool
) -> Metrics:
    """The LiteLLM SDK in a loop; any other system as ``measure_nonstream``."""
    if system.name != "litellm-sdk":
        return measure_nonstream(testbed, system, scenario, options, first_round)
    upstream = testbed.upstream(streaming=False)
    tasks = min(scenario.concurrency, options.max_concurrency)
    command = [sys.executable, "-m", "bench.load.litellm_sdk", str(upstream.port), str(tasks), str(options.seconds)]
    return _run_for_json(testbed, command, system, options.seconds + 90)  # type: ignore[no-any-return]


def measure_renders(
    testbed: Testbed, system: System, scenario: Scenario, options: RunOptions, first_round: bool
) -> Metrics:
    """Prompts rendered per second, for each template and number of turns."""
    renderer, python = "gateway", sys.executable
    if system.name in REFERENCE_PACKAGES:
        given: Path | None = getattr(options, system.name)
        if given is None:
            raise MeasurementError(f"no Python with {system.name} was given (--{system.name})")
        renderer, python = system.name, str(given)
    seconds = min(options.seconds / 12, 0.25)
    command = [python, "-m", f"bench.rendering.render_{renderer}", str(seconds)]
    output = _run_for_json(testbed, command, system, 120)
    if renderer != "gateway" and not options.any_python:
        try:
            check_same_build(system.name, output["python"])
        except DifferentPython as error:  # it was replaced during the run
            raise MeasurementError(str(error)) from error
    metrics: Metrics = output["metrics"]
    return metrics


MEASURE: Mapping[str, Callable[[Testbed, System, Scenario, RunOptions, bool], Metrics]] = {
    # kind of scenario → function
    "nonstream": measure_nonstream,
    "stream": measure_streams,
    "idle": measure_idle,
    "startup": measure_startup,
    "litellm": measure_litellm,
    "renders": measure_renders,
}


def _cpu_metrics(running: RunningSystem, cpu: float, count: float, seconds: float) -> Metrics:
    """CPU time per request or event and use of the core; nothing for ``direct``."""
    return {"cpu_us": cpu / count * 1e6, "core_busy": cpu / seconds} if running.session else {}


def _stream_client(mode: str, running: RunningSystem, scenario: Scenario, options: RunOptions) -> list[str]:
    body = running.write_request_body(scenario, stream=True)
    streams = min(scenario.concurrency, options.max_concurrency)
    return [
        *(sys.executable, "-m", "bench.load.stream_client", mode),
        *("--port", str(running.context.port), "--path", running.system.path, "--body", str(body)),
        *("--headers", json.dumps(running.headers()), "--streams", str(streams)),
    ]


def _read_line(client: ChildProcess) -> str:
    """The client's next line; the client has timeouts of its own."""
    assert client.popen.stdout is not None
    return client.popen.stdout.readline().decode()


def _wait_for_free_upstream(running: RunningSystem) -> tuple[int, float]:
    """Streams still active after ``FREE_TIMEOUT``, and the monotonic time in ns at which the last one ended."""
    end = time.monotonic() + FREE_TIMEOUT
    while time.monotonic() < end:
        counters = request_json(running.upstream.port, "/bench/counters")
        if counters["active_streams"] == 0:
            break
        time.sleep(0.02)
    return counters["active_streams"], float(counters["last_abort_ns"])


def _run_for_json(testbed: Testbed, command: list[str], system: System, timeout: float) -> Any:
    """Run a process on ``SYSTEM_CORE``; returns the last line of its output, parsed as JSON."""
    log = testbed.new_folder(system.name) / "log"
    with ChildProcess(command, SYSTEM_CORE, log, environment(system), ROOT, pipes=True) as child:
        try:
            output, _ = child.popen.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"no result after {timeout:.0f} s") from None
        if child.popen.returncode:
            child.check_alive()
    try:
        return json.loads(output.splitlines()[-1])
    except (ValueError, IndexError):
        raise MeasurementError("the last line of its output is not JSON") from None
