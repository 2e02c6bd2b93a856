"""Closed-loop load of non-streamed requests: wrk, or a Python loop where wrk is not installed.

Each connection sends one request after the other. The Python loop is slower than wrk, so a fast proxy appears slower
than it is; the results name the load generator that was used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import uvloop

from bench.load.http_client import request_bytes
from bench.processes import MeasurementError
from bench.report.stats import percentile

WRK_SCRIPT = """
wrk.method = "%(method)s"
%(headers)s
local file = io.open(%(body)s, "rb")
if file then wrk.body = file:read("*a"); file:close() end
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\\nBENCH {"requests":%%d,"seconds":%%.6f,"errors":%%d,"bad_status":%%d,"p50_ms":%%.4f,"p99_ms":%%.4f}\\n',
    summary.requests, summary.duration / 1e6, e.connect + e.read + e.write + e.timeout, e.status,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""


def load_generator_name() -> str:
    """``wrk``, or ``python`` where wrk is not installed."""
    return "wrk" if shutil.which("wrk") else "python"


def run_load(
    port: int, path: str, body: Path | None, headers: Mapping[str, str], connections: int, seconds: float, folder: Path
) -> dict[str, float]:
    """Generate load on the caller's core; returns requests, seconds, errors, bad_status, p50_ms and p99_ms."""
    if load_generator_name() == "wrk":
        command = _wrk(port, path, body, headers, connections, seconds, folder)
    else:
        arguments = [str(port), path, str(body or ""), json.dumps(dict(headers)), str(connections), str(seconds)]
        command = [sys.executable, "-m", "bench.load.load_generator", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("BENCH ")), None)
    if line is None:
        raise MeasurementError(f"the load generator failed: {(done.stderr or done.stdout).strip()[-200:]}")
    counts: dict[str, float] = json.loads(line.removeprefix("BENCH "))
    return counts


def _wrk(
    port: int, path: str, body: Path | None, headers: Mapping[str, str], connections: int, seconds: float, folder: Path
) -> list[str]:
    lines = [f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}" for name, value in headers.items()]
    script = folder / "wrk.lua"
    script.write_text(
        WRK_SCRIPT
        % {
            "method": "GET" if body is None else "POST",
            "headers": "\n".join(['wrk.headers["content-type"] = "application/json"', *lines]),
            "body": json.dumps(str(body or "/dev/null")),
        },
        encoding="utf-8",
    )
    url = f"http://127.0.0.1:{port}{path}"
    duration = f"{max(1, round(seconds))}s"  # wrk accepts whole seconds only
    return ["wrk", "-t1", f"-c{connections}", f"-d{duration}", "--timeout", "30s", "--latency", "-s", str(script), url]


async def _loop(port: int, request: bytes, connections: int, seconds: float) -> dict[str, float]:
    latencies: list[float] = []
    failures = {"errors": 0, "bad_status": 0}
    end = time.monotonic() + seconds

    async def use_connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.monotonic()) < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r")[0]
            await reader.readexactly(int(length))
            failures["bad_status"] += not head.startswith(b"HTTP/1.1 200")
            latencies.append(time.monotonic() - began)
        writer.close()

    began = time.monotonic()
    async with asyncio.timeout(seconds + 30):
        for outcome in await asyncio.gather(*(use_connection() for _ in range(connections)), return_exceptions=True):
            failures["errors"] += isinstance(outcome, BaseException)
    return {
        "requests": len(latencies),
        "seconds": time.monotonic() - began,
        **failures,
        "p50_ms": percentile(latencies, 50) * 1000,
        "p99_ms": percentile(latencies, 99) * 1000,
    }


def main() -> None:
    """Run the Python loop in a process of its own; ``run_load`` starts it."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, kind in (("port", int), ("path", str), ("body", str), ("headers", json.loads)):
        parser.add_argument(name, type=kind)
    parser.add_argument("connections", type=int)
    parser.add_argument("seconds", type=float)
    args = parser.parse_args()
    body = Path(args.body).read_bytes() if args.body else b""
    request = request_bytes("POST" if args.body else "GET", args.port, args.path, body, args.headers)
    print("BENCH " + json.dumps(uvloop.run(_loop(args.port, request, args.connections, args.seconds))))


if __name__ == "__main__":
    main()
